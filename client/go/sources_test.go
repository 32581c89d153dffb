package credbroker

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"testing"

	"github.com/credbroker/credbroker/client/go/internal/fake"
)

// awaitWatches waits until the broker has so many watches of credentials.
func awaitWatches(t *testing.T, broker *fake.Broker, want int) {
	t.Helper()
	broker.Wait(t, patient(t).Done(), func(watches int) bool { return watches == want })
}

func TestSourcesOfOneRefAreFollowedOnceUntilTheLastIsClosed(t *testing.T) {
	f := newFleet(t, false)
	one, other := f.broker.Source(parisRef), connect(t, f.fake).Source(parisRef)
	for _, source := range []*Source{one, other} {
		if _, err := source.Ready(patient(t)); err != nil {
			t.Fatal(err)
		}
	}
	if watches := f.fake.Watches(); watches != 1 {
		t.Errorf("%d watches", watches)
	}
	first, err := one.RESTConfig(patient(t))
	if err != nil {
		t.Fatal(err)
	}
	second, err := other.RESTConfig(patient(t))
	if err != nil {
		t.Fatal(err)
	}
	assertEqual(t, first, second)
	client, ended := clientOf(t, first), one.Changes(context.Background())
	<-ended
	one.Close()
	one.Close()
	if _, open := <-ended; open || one.Current() != nil {
		t.Error("a Source that is closed has a credential")
	}
	if _, err := one.Ready(patient(t)); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	// The other one goes on, and so do all clients.
	f.server.AcceptToken("token-2")
	changes := other.Changes(patient(t))
	<-changes
	f.fake.Set(paris, token("2"), at(f.server))
	if next := <-changes; next.Generation() != "2" || f.fake.Watches() != 1 {
		t.Error(next, f.fake.Watches())
	}
	if status := get(t, client, f.server.URL+"/version"); status != http.StatusOK {
		t.Error(status)
	}
	other.Close()
	awaitWatches(t, f.fake, 0)
	if _, err := client.Do(request(t, http.MethodGet, f.server.URL+"/version", nil)); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	again := f.broker.Source(parisRef)
	if _, err := again.Ready(patient(t)); err != nil {
		t.Error(err)
	}
}

func TestOtherRefsAreOtherCredentials(t *testing.T) {
	f := newFleet(t, false)
	f.fake.Set("provider/corp", token("1"), nil)
	for _, ref := range []Ref{Provider("corp"), Provider("corp").WithEnv("A", "b")} {
		if _, err := f.broker.Source(ref).Ready(patient(t)); err != nil {
			t.Fatal(err)
		}
	}
	if watches := f.fake.Watches(); watches != 2 {
		t.Errorf("%d watches", watches)
	}
}

func TestABrokerThatIsClosedLeavesTheOthersTheirCredentials(t *testing.T) {
	f := newFleet(t, false)
	config, err := connect(t, f.fake).Source(parisRef).RESTConfig(patient(t))
	if err != nil {
		t.Fatal(err)
	}
	f.config(t)
	f.broker.Close()
	f.broker.Close()
	if status := get(t, clientOf(t, config), f.server.URL+"/version"); status != http.StatusOK {
		t.Error(status)
	}
	if watches := f.fake.Watches(); watches != 1 {
		t.Errorf("%d watches", watches)
	}
}

func TestDefaultAndNewFollowACredentialOnce(t *testing.T) {
	f := newFleet(t, false)
	t.Setenv("CREDBROKER_SOCKET", f.fake.Socket)
	t.Setenv("CREDBROKER_BROKER_UID", "")
	t.Cleanup(func() {
		defaultMu.Lock()
		defer defaultMu.Unlock()
		defaultBroker.Close()
		defaultBroker = nil
	})
	config, err := RESTConfig(patient(t), parisRef)
	if err != nil {
		t.Fatal(err)
	}
	own, err := New(WithTimeout(patience))
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	other, err := own.Source(parisRef).RESTConfig(patient(t))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(config, other) || f.fake.Watches() != 1 {
		t.Errorf("%d watches", f.fake.Watches())
	}
	// One with another expectation of the broker shares nothing.
	uid, err := New(WithBrokerUID(0))
	if err != nil {
		t.Fatal(err)
	}
	defer uid.Close()
	if uid.shared == own.shared {
		t.Error("a Broker with another uid shares a connection")
	}
}

func TestAConfigOfAnotherDrainLimitIsAnotherOne(t *testing.T) {
	f := newFleet(t, false)
	other, err := connect(t, f.fake, WithDrain(2*testDrain)).RESTConfig(patient(t), parisRef)
	if err != nil {
		t.Fatal(err)
	}
	if reflect.DeepEqual(without(f.config(t)), other) {
		t.Error("the limit of one Broker counts for the other")
	}
}
