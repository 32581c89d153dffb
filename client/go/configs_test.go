package credbroker

import (
	"errors"
	"testing"

	pb "github.com/credbroker/credbroker/client/go/credbrokerv1"
	"github.com/credbroker/credbroker/client/go/internal/fake"
	"google.golang.org/grpc/codes"
)

func TestRESTConfigsSayWhyThereIsNoConfigWhenThatChanges(t *testing.T) {
	f := newFleet(t, false)
	fail := func(reason, message string) {
		f.fake.Fail(paris, fake.Failure(codes.Unavailable, reason, message))
	}
	fail("PLUGIN_EXIT", "the plugin exited with 1")
	changes := f.broker.RESTConfigs(patient(t), parisRef)
	if change := <-changes; change.Config != nil || ReasonOf(change.Err) != ReasonPluginExit {
		t.Fatal(change)
	}
	// The next watches fail for the same reason, which is not news.
	fail("PLUGIN_TIMEOUT", "the plugin ran longer than 30s")
	if change := <-changes; change.Config != nil || ReasonOf(change.Err) != ReasonPluginTimeout {
		t.Fatal(change)
	}
	f.fake.Set(paris, token("1"), &pb.Cluster{Server: "http://paris.example"})
	var unusable *UnusableError
	if change := <-changes; change.Config != nil || !errors.As(change.Err, &unusable) {
		t.Fatal(change)
	}
	f.fake.Set(paris, token("2"), at(f.server))
	first := <-changes
	if first.Err != nil || first.Config.Host != f.server.URL {
		t.Fatal(first)
	}
	// A failure while a credential is valid is not a reason.
	fail("PLUGIN_EXIT", "the plugin exited with 1")
	awaitFailure(t, f.broker.Source(parisRef))
	f.rotate(t, token("3"))
	fail("PROVIDER_CHANGED", "the provider was removed")
	if change := <-changes; change.Config != nil || ReasonOf(change.Err) != ReasonProviderChanged {
		t.Fatal(change)
	}
	f.fake.Set(paris, token("4"), at(f.server))
	again := <-changes
	if again.Err != nil {
		t.Fatal(again)
	}
	assertEqual(t, first.Config, again.Config)
}

func TestTheConfigsOfAChannelWorkUntilItIsClosed(t *testing.T) {
	f := newFleet(t, false)
	changes := f.broker.RESTConfigs(patient(t), parisRef)
	<-changes
	f.broker.Close()
	if change, open := <-changes; open {
		t.Error(change)
	}
	awaitWatches(t, f.fake, 0)
	if _, open := <-f.broker.RESTConfigs(patient(t), parisRef); open {
		t.Error("a Broker that is closed has a config")
	}
}
