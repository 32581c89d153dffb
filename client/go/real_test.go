package credbroker

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/credbroker/credbroker/client/go/internal/fake"
	"go.uber.org/goleak"
	"k8s.io/client-go/rest"
)

func tokenStatus(token string) map[string]any {
	return map[string]any{"token": token, "expirationTimestamp": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)}
}

func certificateStatus(pair fake.Pair) map[string]any {
	return map[string]any{
		"clientCertificateData": string(pair.Certificate), "clientKeyData": string(pair.Key),
		"expirationTimestamp": time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
	}
}

func TestTheRealBroker(t *testing.T) {
	real, server := fake.NewRealBroker(t), fake.NewAPIServer(t, false)
	real.Print(tokenStatus("token-1"))
	real.Start()
	server.AcceptToken("token-1")
	broker, err := New(WithSocket(real.Socket), WithDrain(testDrain))
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	if _, err := broker.GetCredential(patient(t), Provider("none")); ReasonOf(err) != ReasonUnknownProvider {
		t.Error(err)
	}
	if _, _, err := broker.ListClusters(patient(t), ""); err != nil && ReasonOf(err) != ReasonHubNotConfigured {
		t.Error(err)
	}
	var none *NoEndpointError
	if _, err := broker.RESTConfig(patient(t), Provider("corp")); !errors.As(err, &none) {
		t.Error(err)
	}
	base := &rest.Config{Host: server.URL, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: server.CA}}
	config, err := broker.Authenticate(patient(t), Provider("corp"), base)
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	assert := func(what string) {
		t.Helper()
		if status := get(t, client, server.URL+"/version"); status != http.StatusOK {
			t.Errorf("%s: %d", what, status)
		}
	}
	assert("a token")
	seen := inform(t, config)
	changes := broker.Source(Provider("corp")).Changes(patient(t))
	<-changes

	server.AcceptToken("token-2")
	real.Print(tokenStatus("token-2"))
	real.Refresh()
	<-changes
	server.RejectToken("token-1")
	assert("the next token")

	// The broker lets a credential be replaced because of a rejection once in ten seconds, so this is the only one.
	server.AcceptToken("token-3")
	real.Print(tokenStatus("token-3"))
	server.RejectToken("token-2")
	for statusOf := http.StatusUnauthorized; statusOf != http.StatusOK; {
		statusOf = get(t, client, server.URL+"/version")
	}

	real.Stop()
	assert("no broker")
	pair := server.Client(t, "ann")
	server.AcceptCertificate(pair)
	real.Print(certificateStatus(pair))
	real.Start()
	for credential := range changes {
		if credential.Certificate() != nil {
			break
		}
	}
	assert("a certificate of the next broker")
	server.RejectToken("token-3")
	server.Wait(t, patient(t).Done(), func(counts fake.Counts, _ int) bool { return counts.Watches == 2 })
	server.Create("last")
	seen.await(t, "last")
	if counts := server.Counts(); counts.Lists != 1 {
		t.Errorf("%+v", counts)
	}
}

// Each variable is another credential, and so another plugin run: these are a hundred, which come and go ten times.
func TestAThousandSourcesOfTheRealBrokerThatComeAndGoLeaveNothing(t *testing.T) {
	real, server := fake.NewRealBroker(t), fake.NewAPIServer(t, true)
	real.Define("callerEnv: [CLUSTER]")
	real.Print(tokenStatus("token-1"))
	real.Start()
	server.AcceptToken("token-1")
	broker, err := New(WithSocket(real.Socket))
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	base := &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: server.CA}}
	config := func(source *Source) (*rest.Config, error) { return source.Authenticate(patient(t), base) }
	var refs []Ref
	for i := range 1000 {
		refs = append(refs, Provider("corp").WithEnv("CLUSTER", fmt.Sprint(i%100)))
	}
	comeAndGo(t, broker, refs[:100], config, server.URL+"/version")
	server.Wait(t, patient(t).Done(), func(_ fake.Counts, open int) bool { return open == 0 })
	before, memory := goleak.IgnoreCurrent(), held()
	comeAndGo(t, broker, refs, config, server.URL+"/version")
	assertNothingLeft(t, broker, before, memory)
}
