package credbroker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/credbroker/credbroker/client/go/credbrokerv1"
	"github.com/credbroker/credbroker/client/go/internal/fake"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// An events collects the names of the ConfigMaps that an informer reports as new.
type events struct {
	running sync.WaitGroup
	lists   atomic.Int64
	mu      sync.Mutex
	names   map[string]int
	changed chan struct{}
}

// inform starts an informer of client-go, which ends with the test.
func inform(t testing.TB, config *rest.Config) *events {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	seen, err := startInformer(ctx, config)
	t.Cleanup(func() {
		stop()
		if seen != nil {
			seen.running.Wait()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return seen
}

// startInformer returns when the informer has its first list.
func startInformer(ctx context.Context, config *rest.Config) (*events, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	maps := client.Resource(configMaps).Namespace("default")
	seen := &events{names: map[string]int{}, changed: make(chan struct{})}
	lists := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			seen.lists.Add(1)
			return maps.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return maps.Watch(ctx, options)
		},
	}
	informer := cache.NewSharedIndexInformer(lists, &unstructured.Unstructured{}, 0, cache.Indexers{})
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: seen.add}); err != nil {
		return nil, err
	}
	seen.running.Go(func() { informer.RunWithContext(ctx) })
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if !cache.WaitForCacheSync(limited.Done(), informer.HasSynced) {
		return seen, errors.New("the informer has not synced")
	}
	return seen, nil
}

func (e *events) add(object any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.names[object.(*unstructured.Unstructured).GetName()]++
	close(e.changed)
	e.changed = make(chan struct{})
}

// await waits for the event of an object.
func (e *events) await(t testing.TB, name string) {
	t.Helper()
	done := patient(t).Done()
	for {
		e.mu.Lock()
		count, changed := e.names[name], e.changed
		e.mu.Unlock()
		if count > 0 {
			return
		}
		select {
		case <-changed:
		case <-done:
			t.Fatalf("the event of %s is lost", name)
		}
	}
}

func (e *events) assertOnceEach(t testing.TB, want int) {
	t.Helper()
	if names, twice := e.counts(); names != want || twice > 0 {
		t.Errorf("%d objects, of which %d came more than once", names, twice)
	}
}

// counts returns the number of objects, and of those that came as new more than once.
func (e *events) counts() (names, twice int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, count := range e.names {
		if count > 1 {
			twice++
		}
	}
	return len(e.names), twice
}

func TestAnInformerNoticesNothingOfTokensAndRestarts(t *testing.T) {
	f := newFleet(t, false)
	seen := inform(t, f.config(t))
	client := f.client(t)
	for i := 2; i < 6; i++ {
		generation := fmt.Sprint(i)
		f.server.AcceptToken("token-" + generation)
		if i == 4 {
			f.fake.Stop()
			f.fake.Start()
		}
		f.rotate(t, token(generation))
		f.server.RejectToken(fmt.Sprintf("token-%d", i-1))
		f.server.Create("after-" + generation)
		seen.await(t, "after-"+generation)
		if status := get(t, client, f.server.URL+"/version"); status != http.StatusOK {
			t.Error(status)
		}
	}
	seen.assertOnceEach(t, 4)
	if counts := f.server.Counts(); counts.Lists != 1 || counts.Watches != 1 || counts.Dials != 1 || counts.Unauthorized != 0 {
		t.Errorf("%+v", counts)
	}
}

func TestAnInformerWatchesOnWithTheNewCertificateAndListsNothing(t *testing.T) {
	for _, http1 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http1=%v", http1), func(t *testing.T) {
			f := newFleet(t, http1)
			pair := f.server.Client(t, "user-1")
			f.server.AcceptCertificate(pair)
			f.rotate(t, certificate("c1", pair))
			seen := inform(t, f.config(t))
			client := f.client(t)
			const rotations = 3
			for i := range rotations {
				old := pair
				pair = f.server.Client(t, fmt.Sprintf("user-%d", i+2))
				f.server.AcceptCertificate(pair)
				f.rotate(t, certificate(fmt.Sprintf("c%d", i+2), pair))
				// The first rotation finds no other request than the watch.
				if i > 0 {
					if status := get(t, client, f.server.URL+"/version"); status != http.StatusOK {
						t.Error(status)
					}
					last := f.server.Identities()
					if last[len(last)-1] != pair.Fingerprint() {
						t.Error("the request has the old certificate")
					}
				}
				// The watch ends at the drain limit, and the next one has the new certificate.
				want := i + 2
				f.server.Wait(t, patient(t).Done(), func(counts fake.Counts, _ int) bool { return counts.Watches == want })
				f.server.RejectCertificate(old)
				name := fmt.Sprintf("after-%d", i)
				f.server.Create(name)
				seen.await(t, name)
			}
			seen.assertOnceEach(t, rotations)
			if counts := f.server.Counts(); counts.Lists != 1 || counts.Unauthorized != 0 {
				t.Errorf("%+v", counts)
			}
			// Of the old certificates no connection is left: with HTTP/1.1, a watch and a request have one each.
			most := 1
			if http1 {
				most = 2
			}
			f.server.Wait(t, patient(t).Done(), func(_ fake.Counts, open int) bool { return open <= most })
		})
	}
}

func TestARevokedCertificateIsReplacedWithinTheRequest(t *testing.T) {
	f := newFleet(t, false)
	first, second := f.server.Client(t, "ann"), f.server.Client(t, "ann")
	f.server.AcceptCertificate(first)
	f.rotate(t, certificate("c1", first))
	client := f.client(t)
	if status := get(t, client, f.server.URL+"/version"); status != http.StatusOK {
		t.Fatal(status)
	}
	f.fake.OnReport(func(string) *pb.WatchCredentialResponse {
		f.server.AcceptCertificate(second)
		return &pb.WatchCredentialResponse{Credential: certificate("c2", second), Cluster: at(f.server)}
	})
	f.server.RejectCertificate(first)
	if status := get(t, client, f.server.URL+"/version"); status != http.StatusOK {
		t.Error(status)
	}
	if dials := f.server.Counts().Dials; dials != 2 {
		t.Errorf("%d connections", dials)
	}
}

func TestIdleConnectionsWithAnOldCertificateAreClosedAtOnce(t *testing.T) {
	f := &fleet{fake: fake.NewBroker(t), server: fake.NewAPIServer(t, false)}
	pair := f.server.Client(t, "ann")
	f.server.AcceptCertificate(pair)
	f.fake.Set(paris, certificate("c1", pair), at(f.server))
	f.broker = connect(t, f.fake, WithDrain(24*time.Hour))
	if status := get(t, f.client(t), f.server.URL+"/version"); status != http.StatusOK {
		t.Fatal(status)
	}
	f.rotate(t, certificate("c2", f.server.Client(t, "ann")))
	f.server.Wait(t, patient(t).Done(), func(_ fake.Counts, open int) bool { return open == 0 })
}
