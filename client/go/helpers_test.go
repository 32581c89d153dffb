package credbroker

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/credbroker/credbroker/client/go/credbrokerv1"
	"github.com/credbroker/credbroker/client/go/internal/fake"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/client-go/rest"
)

// For what has to happen. Tests wait for events, so this is how long a failing test takes.
const patience = 60 * time.Second

const paris = "clusterprofile/fleet/paris"

var parisRef = ClusterProfile("fleet", "paris")

// Short enough for a test, and longer than the second below which client-go takes the end of a watch for a failure.
const testDrain = 1500 * time.Millisecond

func patient(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func connect(t testing.TB, fake *fake.Broker, options ...Option) *Broker {
	t.Helper()
	broker, err := New(append([]Option{WithSocket(fake.Socket), WithDrain(testDrain)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	return broker
}

func token(generation string) *pb.Credential {
	text := "token-" + generation
	return &pb.Credential{
		Generation: generation, Token: &text, ExpirationTime: timestamppb.New(time.Now().Add(time.Hour)),
	}
}

func certificate(generation string, pair fake.Pair) *pb.Credential {
	fingerprint := pair.Fingerprint()
	return &pb.Credential{
		Generation: generation, ClientCertificateData: pair.Certificate,
		// A copy, because the library wipes what it receives and the fake sends it again.
		ClientKeyData: append([]byte(nil), pair.Key...), CertificateFingerprint: &fingerprint,
		ExpirationTime: timestamppb.New(time.Now().Add(time.Hour)),
	}
}

func at(server *fake.APIServer) *pb.Cluster {
	return &pb.Cluster{Server: server.URL, CertificateAuthorityData: server.CA}
}

// A fleet is a fake broker, an API server that accepts the token of the first generation, and a client of the broker.
type fleet struct {
	fake   *fake.Broker
	server *fake.APIServer
	broker *Broker
	// The client certificate of accepted.
	pair fake.Pair
	// What the clocks of the client show, once it is set.
	late atomic.Pointer[instant]
}

func newFleet(t *testing.T, http1 bool) *fleet {
	t.Helper()
	f := &fleet{fake: fake.NewBroker(t), server: fake.NewAPIServer(t, http1)}
	f.server.AcceptToken("token-1")
	f.fake.Set(paris, token("1"), at(f.server))
	f.broker = connect(t, f.fake)
	f.broker.now = func() instant {
		if late := f.late.Load(); late != nil {
			return *late
		}
		return systemClock()
	}
	return f
}

func (f *fleet) config(t testing.TB) *rest.Config {
	t.Helper()
	config, err := f.broker.RESTConfig(patient(t), parisRef)
	if err != nil {
		t.Fatal(err)
	}
	// Tests make many requests.
	config.QPS = -1
	return config
}

func (f *fleet) client(t testing.TB) *http.Client {
	t.Helper()
	client, err := rest.HTTPClientFor(f.config(t))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// rotate sends a credential to the client, and waits until it has it.
func (f *fleet) rotate(t testing.TB, credential *pb.Credential) {
	t.Helper()
	f.fake.Set(paris, credential, at(f.server))
	f.await(t, credential.GetGeneration())
}

func (f *fleet) await(t testing.TB, generation string) {
	t.Helper()
	for credential := range f.broker.Source(parisRef).Changes(patient(t)) {
		if credential.Generation() == generation {
			return
		}
	}
	t.Fatalf("generation %s did not come", generation)
}

func get(t testing.TB, client *http.Client, url string) int {
	t.Helper()
	return do(t, client, request(t, http.MethodGet, url, nil))
}

func request(t testing.TB, method, url string, body io.Reader) *http.Request {
	t.Helper()
	made, err := http.NewRequestWithContext(patient(t), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func do(t testing.TB, client *http.Client, request *http.Request) int {
	t.Helper()
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode
}
