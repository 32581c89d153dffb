package credbroker

import (
	"io/fs"
	"net/http"
	"reflect"
	"testing"

	"github.com/credbroker/credbroker/client/go/internal/fake"
	"google.golang.org/grpc/codes"
	"k8s.io/client-go/rest"
)

// awaitFailure waits until the source has a failure.
func awaitFailure(t *testing.T, source *Source) {
	t.Helper()
	done := patient(t).Done()
	for {
		changed, failure := source.followed.state()
		if failure != nil {
			return
		}
		select {
		case <-changed:
		case <-done:
			t.Fatal("no failure")
		}
	}
}

func TestNoCredentialOfAnEarlierDefinitionIsUsed(t *testing.T) {
	f := newFleet(t, false)
	there := fake.NewAPIServer(t, false)
	there.AcceptToken("token-2")
	there.AcceptToken("token-3")
	left := f.client(t)
	f.fake.Set(paris, token("2"), at(there))
	f.await(t, "2")
	config, err := f.broker.RESTConfig(patient(t), parisRef)
	if err != nil {
		t.Fatal(err)
	}
	client, source := clientOf(t, config), f.broker.Source(parisRef)
	if status := get(t, client, there.URL+"/version"); status != http.StatusOK {
		t.Fatal(status)
	}

	f.fake.Fail(paris, fake.Failure(codes.Unavailable, "PROVIDER_CHANGED", "the provider was changed"))
	awaitFailure(t, source)
	if credential := source.Current(); credential != nil {
		t.Error(credential)
	}
	// The request waits for the credential of the new definition.
	answered := make(chan error)
	go func() {
		response, err := client.Do(request(t, http.MethodGet, there.URL+"/version", nil))
		if err == nil {
			response.Body.Close()
		}
		answered <- err
	}()
	f.fake.Set(paris, token("3"), at(there))
	if err := <-answered; err != nil {
		t.Error(err)
	}
	if seen := there.Identities(); !reflect.DeepEqual(seen, []string{"token-2", "token-3"}) {
		t.Errorf("%v was sent", seen)
	}
	// Nor by a client of an endpoint that the cluster has left.
	if _, err := left.Do(request(t, http.MethodGet, f.server.URL+"/version", nil)); err == nil || len(f.server.Identities()) > 0 {
		t.Error(err)
	}
	again, err := f.broker.RESTConfig(patient(t), parisRef)
	if err != nil {
		t.Fatal(err)
	}
	assertEqual(t, config, again)
}

// followReal starts a real broker whose plugin prints token-1, and follows its provider.
func followReal(t *testing.T) (*fake.RealBroker, *Source, <-chan *Credential) {
	t.Helper()
	real := fake.NewRealBroker(t)
	real.Print(tokenStatus("token-1"))
	real.Start()
	broker, err := New(WithSocket(real.Socket))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	source := broker.Source(Provider("corp"))
	return real, source, source.Changes(patient(t))
}

func TestARealBrokerWithAChangedDefinitionWithdrawsTheCredential(t *testing.T) {
	real, source, changes := followReal(t)
	if first := <-changes; first.Token() != "token-1" {
		t.Fatal(first)
	}
	real.Break()
	real.Define("timeout: 31s")
	for done := patient(t).Done(); ; {
		changed, _ := source.followed.state()
		if source.Current() == nil {
			break
		}
		select {
		case <-changed:
		case <-done:
			t.Fatal("the credential of the earlier definition is used")
		}
	}
	if _, err := source.Ready(patient(t)); ReasonOf(err) != ReasonPluginExit {
		t.Error(err)
	}
	real.Print(tokenStatus("token-2"))
	if next := <-changes; next.Token() != "token-2" {
		t.Error(next)
	}
}

func TestARealBrokerThatEvictsACredentialWithdrawsIt(t *testing.T) {
	real, source, changes := followReal(t)
	first := <-changes
	if first.Token() != "token-1" {
		t.Fatal(first)
	}
	real.Print(tokenStatus("token-2"))
	real.Refresh()
	second := <-changes
	if second.Token() != "token-2" || !first.isValid(source.followed.shared.now()) {
		t.Fatal(first, second)
	}
	real.Print(tokenStatus("token-3"))
	real.Evict()
	if third := <-changes; third.Token() != "token-3" || second.isValid(source.followed.shared.now()) {
		t.Error(second, third)
	}
}

func TestARemovedProviderHasNoCredential(t *testing.T) {
	f := newFleet(t, false)
	client, source := f.client(t), f.broker.Source(parisRef)
	f.fake.Fail(paris, fake.Failure(codes.Unavailable, "PROVIDER_CHANGED", "the provider was removed"))
	awaitFailure(t, source)
	f.fake.Fail(paris, fake.Failure(codes.NotFound, "UNKNOWN_PROVIDER", "no provider has this name"))
	_, err := client.Do(request(t, http.MethodGet, f.server.URL+"/version", nil))
	if ReasonOf(err) != ReasonUnknownProvider || len(f.server.Identities()) > 0 {
		t.Error(err)
	}
}

// The new watch is accepted, and its first message is that of a plugin run, which may take longer than a start of the broker.
func TestTheFirstCredentialOfADefinitionIsWaitedFor(t *testing.T) {
	f := newFleet(t, false)
	f.fake.Hold("provider/corp")
	source := f.broker.Source(Provider("corp"))
	for err, want := range map[error]bool{
		&Error{Reason: ReasonProviderChanged}:  false,
		&Error{Reason: ReasonUnknownProvider}:  true,
		&Error{Reason: ReasonDraining}:         false,
		&UnreachableError{Err: fs.ErrNotExist}: false,
	} {
		source.followed.fail(err)
		source.followed.begin()
		if failure := source.Failure(); (failure != nil) != want {
			t.Errorf("%v: %v", err, failure)
		}
	}
}

// A broker that starts while a kubeconfig is written does not know its users at first: UNKNOWN_PROVIDER and
// UNKNOWN_DEFINITION do not say that the definition is gone.
func TestEveryOtherFailureLeavesTheCredential(t *testing.T) {
	f := newFleet(t, false)
	f.config(t)
	source := f.broker.Source(parisRef)
	for _, reason := range allReasons {
		if reason == ReasonProviderChanged {
			continue
		}
		if source.followed.fail(&Error{Reason: reason}); source.Current() == nil {
			t.Errorf("%s withdraws the credential", reason)
		}
	}
	if source.followed.fail(&UnreachableError{}); source.Current() == nil {
		t.Error("a broker that is gone withdraws the credential")
	}
	if _, err := rest.HTTPClientFor(f.config(t)); err != nil {
		t.Error(err)
	}
}
