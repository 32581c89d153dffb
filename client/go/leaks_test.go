package credbroker

import (
	"context"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/credbroker/credbroker/client/go/internal/fake"
)

// goroutines returns the stacks of all goroutines that run a function of this package. The tests do not run in parallel.
func goroutines() []string {
	stacks := make([]byte, 8<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	var ours []string
	for _, stack := range strings.Split(string(stacks), "\n\n") {
		if strings.Contains(stack, "credbroker/client/go.") && !strings.Contains(stack, "_test.go") {
			ours = append(ours, stack)
		}
	}
	return ours
}

// awaitGoroutines waits until so many are left. One that has closed its channel may still be on its last line.
func awaitGoroutines(t *testing.T, want int) {
	t.Helper()
	ctx := patient(t)
	for len(goroutines()) != want {
		if ctx.Err() != nil {
			t.Fatalf("%d goroutines instead of %d:\n%s", len(goroutines()), want, strings.Join(goroutines(), "\n\n"))
		}
		time.Sleep(time.Millisecond)
	}
}

func TestGoroutinesEndWithTheirContextsAndAllWithTheBroker(t *testing.T) {
	awaitGoroutines(t, 0)
	f := newFleet(t, false)
	if status := get(t, f.client(t), f.server.URL+"/version"); status != http.StatusOK {
		t.Fatal(status)
	}
	clusters := f.broker.Clusters("fleet")
	if err := clusters.Ready(patient(t)); err != nil {
		t.Fatal(err)
	}
	// One for the watch of the credential, and one for that of the clusters.
	awaitGoroutines(t, 2)
	ctx, end := context.WithCancel(t.Context())
	<-f.broker.Source(parisRef).Changes(ctx)
	<-f.broker.RESTConfigs(ctx, parisRef)
	clusters.Events(ctx)
	f.broker.Source(parisRef).Changes(ctx)
	if len(goroutines()) <= 2 {
		t.Error("the test sees no goroutines")
	}
	end()
	awaitGoroutines(t, 2)
	clusters.Close()
	awaitGoroutines(t, 1)
	f.broker.Forget(parisRef)
	awaitGoroutines(t, 0)

	f.config(t)
	f.broker.Clusters("fleet").Events(context.Background())
	f.broker.Source(parisRef).Changes(context.Background())
	f.broker.Close()
	if left := goroutines(); len(left) > 0 {
		t.Errorf("Close left:\n%s", strings.Join(left, "\n\n"))
	}
	f.server.Wait(t, patient(t).Done(), func(_ fake.Counts, open int) bool { return open == 0 })
}
