package credbroker

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"

	pb "github.com/credbroker/credbroker/client/go/credbrokerv1"
	"github.com/credbroker/credbroker/client/go/internal/fake"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/rest"
)

func assertEqual(t *testing.T, a, b *rest.Config) {
	t.Helper()
	for name, equal := range map[string]bool{
		"reflect":          reflect.DeepEqual(a, b),
		"semantic":         equality.Semantic.DeepEqual(a, b),
		"reflect, copies":  reflect.DeepEqual(rest.CopyConfig(a), rest.CopyConfig(b)),
		"semantic, copies": equality.Semantic.DeepEqual(rest.CopyConfig(a), rest.CopyConfig(b)),
		"values":           reflect.DeepEqual(*a, *b),
	} {
		if !equal {
			t.Errorf("the configs are not equal (%s)", name)
		}
	}
}

func TestAConfigIsEqualToTheNextOneThroughRotations(t *testing.T) {
	f := newFleet(t, false)
	first := f.config(t)
	assertEqual(t, first, f.config(t))
	f.rotate(t, token("2"))
	assertEqual(t, first, f.config(t))
	f.rotate(t, certificate("3", f.server.Client(t, "ann")))
	assertEqual(t, first, f.config(t))
	f.fake.Stop()
	f.fake.Start()
	f.rotate(t, token("4"))
	assertEqual(t, first, f.config(t))

	f.fake.Set("clusterprofile/fleet/tokyo", token("1"), at(f.server))
	other, err := f.broker.RESTConfig(patient(t), ClusterProfile("fleet", "tokyo"))
	if err != nil {
		t.Fatal(err)
	}
	if reflect.DeepEqual(first, other) {
		t.Error("another cluster has the same config")
	}
}

func TestAChangeOfOneConfigDoesNotReachTheNext(t *testing.T) {
	f := newFleet(t, false)
	first := f.config(t)
	first.CAData[0], first.AuthProvider.Config[pluginKey] = 'x', "x"
	if next := f.config(t); reflect.DeepEqual(first, next) || next.CAData[0] == 'x' {
		t.Error("configs share memory")
	}
}

func TestTheNextRequestHasTheNewToken(t *testing.T) {
	for _, http1 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http1=%v", http1), func(t *testing.T) {
			f := newFleet(t, http1)
			client := f.client(t)
			for _, generation := range []string{"1", "2", "3"} {
				f.server.AcceptToken("token-" + generation)
				f.rotate(t, token(generation))
				if status := get(t, client, f.server.URL+"/version"); status != http.StatusOK {
					t.Fatal(status)
				}
			}
			if got, want := f.server.Identities(), []string{"token-1", "token-2", "token-3"}; !reflect.DeepEqual(got, want) {
				t.Errorf("%v was sent", got)
			}
			if dials := f.server.Counts().Dials; dials != 1 {
				t.Errorf("%d connections: a token needs no other one", dials)
			}
		})
	}
}

func TestClientsOfOneConfigShareConnections(t *testing.T) {
	f := newFleet(t, false)
	for range 3 {
		if status := get(t, f.client(t), f.server.URL+"/version"); status != http.StatusOK {
			t.Fatal(status)
		}
	}
	if dials := f.server.Counts().Dials; dials != 1 {
		t.Errorf("%d connections", dials)
	}
}

func TestARejectionIsReportedAndARequestWithoutABodySentOnceMore(t *testing.T) {
	f := newFleet(t, false)
	client := f.client(t)
	f.fake.OnReport(func(string) *pb.WatchCredentialResponse {
		f.server.AcceptToken("token-2")
		return &pb.WatchCredentialResponse{Credential: token("2"), Cluster: at(f.server)}
	})
	f.server.RejectToken("token-1")
	if status := get(t, client, f.server.URL+"/version"); status != http.StatusOK {
		t.Error(status)
	}
	if reports := f.fake.Reports(); !reflect.DeepEqual(reports, []string{"1"}) {
		t.Errorf("%v was reported", reports)
	}
	if counts := f.server.Counts(); counts.Requests != 2 || counts.Unauthorized != 1 {
		t.Errorf("%+v", counts)
	}
}

func TestARequestWithABodyIsNotSentAgain(t *testing.T) {
	f := newFleet(t, false)
	client := f.client(t)
	f.fake.OnReport(func(string) *pb.WatchCredentialResponse {
		f.server.AcceptToken("token-2")
		return &pb.WatchCredentialResponse{Credential: token("2"), Cluster: at(f.server)}
	})
	f.server.RejectToken("token-1")
	created := request(t, http.MethodPost, f.server.URL+"/api/v1/namespaces/default/configmaps", strings.NewReader("{}"))
	if status := do(t, client, created); status != http.StatusUnauthorized {
		t.Error(status)
	}
	f.await(t, "2")
	if counts := f.server.Counts(); counts.Requests != 1 {
		t.Errorf("%+v", counts)
	}
}

func TestARequestWithAnEmptyBodyCanBeSentAgain(t *testing.T) {
	for _, body := range []io.Reader{nil, strings.NewReader(""), bytes.NewReader(nil)} {
		if !isRepeatable(request(t, http.MethodGet, "/", body)) {
			t.Errorf("%T", body)
		}
	}
	if isRepeatable(request(t, http.MethodGet, "/", strings.NewReader("x"))) {
		t.Error("a body cannot be sent again")
	}
}

func TestManyRejectionsAreOneReport(t *testing.T) {
	f := newFleet(t, false)
	client := f.client(t)
	f.server.RejectToken("token-1")
	// The broker has nothing newer: the answer is the server's.
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			if status := get(t, client, f.server.URL+"/version"); status != http.StatusUnauthorized {
				t.Error(status)
			}
		})
	}
	group.Wait()
	if reports := f.fake.Reports(); len(reports) == 0 || len(reports) > 2 {
		t.Errorf("%v was reported", reports)
	}
}

func TestARequestWithItsOwnCredentialIsSentAsItIs(t *testing.T) {
	f := newFleet(t, false)
	own := request(t, http.MethodGet, f.server.URL+"/version", nil)
	own.Header.Set("Authorization", "Bearer other")
	if status := do(t, f.client(t), own); status != http.StatusUnauthorized {
		t.Error(status)
	}
	if seen, reports := f.server.Identities(), f.fake.Reports(); !reflect.DeepEqual(seen, []string{"other"}) || len(reports) > 0 {
		t.Errorf("%v was sent, %v was reported", seen, reports)
	}
}

func TestACredentialIsNotSentToAnotherServer(t *testing.T) {
	f := newFleet(t, false)
	other := fake.NewAPIServer(t, false)
	_, err := f.client(t).Do(request(t, http.MethodGet, f.server.URL+"/redirect?to="+other.URL, nil))
	var refused *OtherServerError
	if !errors.As(err, &refused) {
		t.Fatal(err)
	}
	if seen := other.Identities(); len(seen) > 0 {
		t.Errorf("%v was sent", seen)
	}
	config := f.config(t)
	config.Host = other.URL
	if _, err := rest.HTTPClientFor(config); err == nil || !strings.Contains(err.Error(), "another Host") {
		t.Error(err)
	}
}

func TestAMovedEndpointIsAnotherConfigAndTheOldOneKeepsItsCredential(t *testing.T) {
	f := newFleet(t, false)
	config, client := f.config(t), f.client(t)
	configs := f.broker.RESTConfigs(patient(t), parisRef)
	assertEqual(t, without(config), <-configs)

	there := fake.NewAPIServer(t, false)
	there.AcceptToken("token-2")
	f.fake.Set(paris, token("2"), at(there))
	moved := <-configs
	if moved.Host != there.URL || reflect.DeepEqual(without(config), moved) {
		t.Error("the config has not moved")
	}
	client2, err := rest.HTTPClientFor(moved)
	if err != nil {
		t.Fatal(err)
	}
	if status := get(t, client2, there.URL+"/version"); status != http.StatusOK {
		t.Error(status)
	}
	// The new token never reaches the old endpoint, and its 401s say nothing about it.
	f.server.RejectToken("token-1")
	if status := get(t, client, f.server.URL+"/version"); status != http.StatusUnauthorized {
		t.Error(status)
	}
	if seen, reports := f.server.Identities(), f.fake.Reports(); !reflect.DeepEqual(seen, []string{"token-1"}) || len(reports) > 0 {
		t.Errorf("%v was sent, %v was reported", seen, reports)
	}

	f.fake.Set(paris, token("3"), at(f.server))
	back := <-configs
	assertEqual(t, without(config), back)
}

// without returns a config as the broker returns it.
func without(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS = 0
	return config
}

func TestAnExpiredCredentialOfAnEndpointThatMovedIsNotSent(t *testing.T) {
	f := newFleet(t, false)
	var stepped sync.Mutex
	now := systemClock
	f.broker.now = func() instant {
		stepped.Lock()
		defer stepped.Unlock()
		return now()
	}
	client := f.client(t)
	there := fake.NewAPIServer(t, false)
	f.fake.Set(paris, &pb.Credential{Generation: "2", Token: token("2").Token}, at(there))
	f.await(t, "2")
	stepped.Lock()
	late := systemClock()
	late.wall, late.boot = late.wall.Add(2*patience*60), late.boot+2*patience*60
	now = func() instant { return late }
	stepped.Unlock()
	_, err := client.Do(request(t, http.MethodGet, f.server.URL+"/version", nil))
	var moved *MovedError
	if !errors.As(err, &moved) || len(f.server.Identities()) > 0 {
		t.Error(err)
	}
}

func TestAnEndpointThatCannotBeUsedIsRefusedWithTheReason(t *testing.T) {
	f := newFleet(t, false)
	for problem, change := range map[string]func(*pb.Cluster){
		"not a valid URL":          func(c *pb.Cluster) { c.Server = "paris.example" },
		"without TLS":              func(c *pb.Cluster) { c.Server = "http://paris.example" },
		"user in its URL":          func(c *pb.Cluster) { c.Server = "https://c4n4ry:c4n4ry@paris.example" },
		"does not verify them":     func(c *pb.Cluster) { c.InsecureSkipTlsVerify = true },
		"proxy is not a valid URL": func(c *pb.Cluster) { proxy := "http://u:c4n4ry@ proxy"; c.ProxyUrl = &proxy },
	} {
		cluster := at(f.server)
		change(cluster)
		name := strings.ReplaceAll(problem, " ", "-")
		f.fake.Set("clusterprofile/fleet/"+name, token("1"), cluster)
		_, err := f.broker.RESTConfig(patient(t), ClusterProfile("fleet", name))
		var unusable *UnusableError
		if !errors.As(err, &unusable) || !strings.Contains(err.Error(), problem) || strings.Contains(err.Error(), "c4n4ry") {
			t.Errorf("%s: %v", problem, err)
		}
	}
	f.fake.Set("provider/corp", token("1"), nil)
	_, err := f.broker.RESTConfig(patient(t), Provider("corp"))
	var none *NoEndpointError
	if !errors.As(err, &none) {
		t.Error(err)
	}
}

func TestTheCredentialOfAProviderGoesToTheServerThatIsNamed(t *testing.T) {
	f := newFleet(t, false)
	f.fake.Set("provider/corp", token("1"), nil)
	base := &rest.Config{Host: f.server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: f.server.CA}}
	config, err := f.broker.Authenticate(patient(t), Provider("corp"), base)
	if err != nil {
		t.Fatal(err)
	}
	again, err := f.broker.Authenticate(patient(t), Provider("corp"), base)
	if err != nil {
		t.Fatal(err)
	}
	assertEqual(t, config, again)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	if status := get(t, client, f.server.URL+"/version"); status != http.StatusOK {
		t.Error(status)
	}
	base.BearerToken = "c4n4ry"
	if _, err := f.broker.Authenticate(patient(t), Provider("corp"), base); err == nil || strings.Contains(err.Error(), "c4n4ry") {
		t.Error(err)
	}
	elsewhere := &rest.Config{Host: "https://elsewhere.example"}
	var other *OtherServerError
	if _, err := f.broker.Authenticate(patient(t), parisRef, elsewhere); !errors.As(err, &other) {
		t.Error(err)
	}
}

func TestWrappersOfTheConfigSeeRequestsWithTokens(t *testing.T) {
	f := newFleet(t, false)
	config, seen := f.config(t), 0
	config.Wrap(func(below http.RoundTripper) http.RoundTripper {
		return roundTripperFunc(func(r *http.Request) (*http.Response, error) {
			seen++
			return below.RoundTrip(r)
		})
	})
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	if status := get(t, client, f.server.URL+"/version"); status != http.StatusOK || seen != 1 {
		t.Error(status, seen)
	}
	f.rotate(t, certificate("2", f.server.Client(t, "ann")))
	_, err = client.Do(request(t, http.MethodGet, f.server.URL+"/version", nil))
	var unsupported *UnsupportedTransportError
	if !errors.As(err, &unsupported) {
		t.Error(err)
	}
}

// As Argo CD makes its transports.
func TestATransportOfTheProgramKeepsItsSettingsAndGetsTheCertificate(t *testing.T) {
	f := newFleet(t, false)
	pair := f.server.Client(t, "ann")
	f.server.AcceptCertificate(pair)
	f.rotate(t, certificate("2", pair))
	config := f.config(t)
	settings, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.HTTPWrappersForConfig(config, &http.Transport{TLSClientConfig: settings, MaxConnsPerHost: 7})
	if err != nil {
		t.Fatal(err)
	}
	if status := get(t, &http.Client{Transport: transport}, f.server.URL+"/version"); status != http.StatusOK {
		t.Error(status)
	}
}

type roundTripperFunc func(*http.Request) (*http.Response, error)

func (f roundTripperFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestAForgottenCredentialIsNotUsed(t *testing.T) {
	f := newFleet(t, false)
	config, client := f.config(t), f.client(t)
	if status := get(t, client, f.server.URL+"/version"); status != http.StatusOK {
		t.Fatal(status)
	}
	f.broker.Forget(parisRef)
	if _, err := client.Do(request(t, http.MethodGet, f.server.URL+"/version", nil)); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if _, err := rest.HTTPClientFor(config); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	f.server.Wait(t, patient(t).Done(), func(_ fake.Counts, open int) bool { return open == 0 })
}
