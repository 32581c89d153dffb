package credbroker

import (
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/credbroker/credbroker/client/go/internal/fake"
	"k8s.io/client-go/rest"
)

func TestConnectionsOfClientsThatAreGoneAreClosed(t *testing.T) {
	f := newFleet(t, false)
	config := f.config(t)
	settings, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	const clients = 5
	for range clients {
		transport, err := rest.HTTPWrappersForConfig(config, &http.Transport{TLSClientConfig: settings.Clone()})
		if err != nil {
			t.Fatal(err)
		}
		if status := get(t, &http.Client{Transport: transport}, f.server.URL+"/version"); status != http.StatusOK {
			t.Fatal(status)
		}
	}
	if dials := f.server.Counts().Dials; dials != clients {
		t.Fatalf("%d connections", dials)
	}
	// The collector runs the cleanups some time after a collection.
	ctx := patient(t)
	go func() {
		for ctx.Err() == nil && t.Context().Err() == nil {
			runtime.GC()
			time.Sleep(10 * time.Millisecond)
		}
	}()
	f.server.Wait(t, ctx.Done(), func(_ fake.Counts, open int) bool { return open == 0 })
}

func TestAReadWithoutAnAnswerAtTheDrainLimitIsSentAgainAndAChangeIsNot(t *testing.T) {
	for method, again := range map[string]bool{http.MethodGet: true, http.MethodDelete: false} {
		t.Run(method, func(t *testing.T) {
			f := newFleet(t, false)
			client := f.client(t)
			answered := make(chan error)
			go func() {
				response, err := client.Do(request(t, method, f.server.URL+"/hold", nil))
				if err == nil {
					response.Body.Close()
				}
				answered <- err
			}()
			f.server.Wait(t, patient(t).Done(), func(counts fake.Counts, _ int) bool { return counts.Requests == 1 })
			pair := f.server.Client(t, "ann")
			f.server.AcceptCertificate(pair)
			f.rotate(t, certificate("2", pair))
			err, requests := <-answered, f.server.Counts().Requests
			if (err == nil) != again || (requests == 2) != again {
				t.Errorf("%d requests: %v", requests, err)
			}
		})
	}
}

func TestARequestThatForgetOvertakesOpensNoConnection(t *testing.T) {
	f := newFleet(t, false)
	f.config(t)
	target := f.targets(t)[0]
	made := newLanes(target, &http.Transport{})
	f.broker.Forget(parisRef)
	// As a request that found its credential valid before.
	if credential, lane := made.take(); credential != nil || lane != nil {
		t.Error("nothing would close this connection")
	}
}
