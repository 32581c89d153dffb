package credbroker

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/credbroker/credbroker/client/go/internal/fake"
	"go.uber.org/goleak"
	"k8s.io/client-go/rest"
)

// awaitNoGoroutines waits until all goroutines have ended that were not there before. One that has closed its channel may
// still be on its last line, and connections end in the background.
func awaitNoGoroutines(t *testing.T, before goleak.Option) {
	t.Helper()
	for done := patient(t).Done(); ; {
		left := goleak.Find(before)
		if left == nil {
			return
		}
		select {
		case <-done:
			t.Fatal(left)
		default:
		}
	}
}

func TestGoroutinesEndWithTheirContextsAndAllWithTheBroker(t *testing.T) {
	f := newFleet(t, false)
	// A connection, which stays.
	open := f.broker.Source(parisRef)
	if _, err := open.Ready(patient(t)); err != nil {
		t.Fatal(err)
	}
	before := goleak.IgnoreCurrent()
	ctx, end := context.WithCancel(t.Context())
	clusters, source := f.broker.Clusters("fleet"), f.broker.Source(parisRef)
	if err := clusters.Ready(patient(t)); err != nil {
		t.Fatal(err)
	}
	<-source.Changes(ctx)
	<-f.broker.RESTConfigs(ctx, parisRef)
	clusters.Events(ctx)
	if goleak.Find(before) == nil {
		t.Error("the test sees no goroutines")
	}
	end()
	clusters.Close()
	awaitNoGoroutines(t, before)
	source.Changes(context.Background())
	source.Close()
	awaitNoGoroutines(t, before)

	f.config(t)
	f.broker.Clusters("fleet").Events(context.Background())
	f.broker.Source(parisRef).Changes(context.Background())
	f.broker.RESTConfigs(context.Background(), parisRef)
	f.broker.Close()
	awaitNoGoroutines(t, before)
}

// held returns the bytes of the heap that are in use.
func held() int64 {
	// Twice, because the first one runs the cleanups that drop connections.
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// comeAndGo makes a client for each Ref, sends a request, and closes the Source, a hundred at a time.
func comeAndGo(t *testing.T, broker *Broker, refs []Ref, config func(*Source) (*rest.Config, error), url string) {
	t.Helper()
	for len(refs) > 0 {
		batch := refs[:min(100, len(refs))]
		refs = refs[len(batch):]
		var group sync.WaitGroup
		for _, ref := range batch {
			group.Go(func() {
				source := broker.Source(ref)
				defer source.Close()
				made, err := config(source)
				if err != nil {
					t.Error(err)
					return
				}
				client, err := rest.HTTPClientFor(made)
				if err != nil {
					t.Error(err)
					return
				}
				response, err := client.Get(url)
				if err != nil {
					t.Error(err)
					return
				}
				if response.Body.Close(); response.StatusCode != http.StatusOK {
					t.Error(response.Status)
				}
			})
		}
		group.Wait()
	}
}

// assertNothingLeft fails if goroutines, memory or names are left of a fleet that is gone.
func assertNothingLeft(t *testing.T, broker *Broker, before goleak.Option, memory int64) {
	t.Helper()
	awaitNoGoroutines(t, before)
	broker.shared.mu.Lock()
	if left := len(broker.shared.followed); left > 0 {
		t.Errorf("%d credentials are followed", left)
	}
	broker.shared.mu.Unlock()
	registry.Range(func(name, of any) bool {
		if of.(*target).source.shared == broker.shared {
			t.Errorf("%s can be used", name)
		}
		return true
	})
	// Connections are dropped after their last use.
	const mebibyte = 1 << 20
	for done := patient(t).Done(); ; {
		more := held() - memory
		if more < mebibyte {
			return
		}
		select {
		case <-done:
			t.Fatalf("%d bytes more are held", more)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func TestAThousandClustersThatComeAndGoLeaveNothing(t *testing.T) {
	// With HTTP/1, because a connection with HTTP/2 is held for 30 s after its end, by its timer for pings.
	f := newFleet(t, true)
	var refs []Ref
	for i := range 1000 {
		name := fmt.Sprint("c", i)
		f.fake.Set("clusterprofile/fleet/"+name, token("1"), at(f.server))
		refs = append(refs, ClusterProfile("fleet", name))
	}
	config := func(source *Source) (*rest.Config, error) { return source.RESTConfig(patient(t)) }
	// Those of the first ones stay: connections to the broker, and buffers.
	comeAndGo(t, f.broker, refs[:200], config, f.server.URL+"/version")
	awaitWatches(t, f.fake, 0)
	f.server.Wait(t, patient(t).Done(), func(_ fake.Counts, open int) bool { return open == 0 })
	before, memory := goleak.IgnoreCurrent(), held()
	comeAndGo(t, f.broker, refs, config, f.server.URL+"/version")
	assertNothingLeft(t, f.broker, before, memory)
	awaitWatches(t, f.fake, 0)
}
