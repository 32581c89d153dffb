package credbroker

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/credbroker/credbroker/client/go/internal/fake"
	"google.golang.org/grpc/codes"
)

func TestTheTextOfAWaitNamesWhatTheEndAndTheLastFailure(t *testing.T) {
	failed := &Error{Reason: ReasonPluginTimeout, Message: "corp: the plugin ran longer than 30s"}
	for err, want := range map[error]string{
		&waitError{parisRef.said, context.DeadlineExceeded, failed}:                                                "credbroker: cluster fleet/paris: context deadline exceeded; last: PLUGIN_TIMEOUT: corp: the plugin ran longer than 30s",
		&waitError{Provider("corp").said, context.Canceled, &UnreachableError{Socket: "/s", Err: errors.New("x")}}: "credbroker: provider corp: context canceled; last: no broker answers on /s: x",
		&waitError{"clusters of fleet", &TimeoutError{Limit: time.Second}, nil}:                                    "credbroker: clusters of fleet: no answer within 1s; last: no failure, a plugin run may be in progress",
	} {
		if err.Error() != want {
			t.Errorf("%q instead of %q", err, want)
		}
	}
}

// Each call that waits, with a deadline that passes while there is no broker, or while it shuts down.
func TestTheDeadlineOfACallerDoesNotHideTheCause(t *testing.T) {
	f := newFleet(t, false)
	client := f.client(t)
	waits := map[string]func(context.Context) error{
		"Source.Ready": func(ctx context.Context) error {
			_, err := f.broker.Source(Provider("ready")).Ready(ctx)
			return err
		},
		"Source.RESTConfig": func(ctx context.Context) error {
			_, err := f.broker.Source(ClusterProfile("fleet", "source")).RESTConfig(ctx)
			return err
		},
		"RESTConfig": func(ctx context.Context) error {
			_, err := f.broker.RESTConfig(ctx, ClusterProfile("fleet", "config"))
			return err
		},
		"Authenticate": func(ctx context.Context) error {
			_, err := f.broker.Authenticate(ctx, Provider("authenticate"), f.base())
			return err
		},
		"a request": func(ctx context.Context) error {
			made, err := http.NewRequestWithContext(ctx, http.MethodGet, f.server.URL+"/version", nil)
			if err != nil {
				return err
			}
			_, err = client.Do(made)
			return err
		},
		"Clusters.Ready": func(ctx context.Context) error { return f.broker.Clusters("fleet").Ready(ctx) },
	}
	f.fake.Stop()
	f.expire()
	for name, wait := range waits {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		err := wait(ctx)
		cancel()
		var unreachable *UnreachableError
		if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &unreachable) {
			t.Errorf("%s: %v", name, err)
		}
		ctx, cancelCause := context.WithCancelCause(t.Context())
		cancelCause(errors.New("the user left"))
		if err := wait(ctx); err == nil || !strings.Contains(err.Error(), "the user left") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheDeadlineOfACallerDoesNotHideTheReason(t *testing.T) {
	f := newFleet(t, false)
	f.fake.Fail(paris, fake.Failure(codes.Unavailable, "DRAINING", "the broker is shutting down"))
	source := f.broker.Source(parisRef)
	awaitFailure(t, source)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := source.Ready(ctx)
	var failed *Error
	if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &failed) || failed.Reason != ReasonDraining || ReasonOf(err) != ReasonDraining {
		t.Error(err)
	}
	const want = "credbroker: cluster fleet/paris: context deadline exceeded; last: DRAINING: the broker is shutting down"
	if err.Error() != want {
		t.Error(err)
	}
}

func TestACallThatItsCallerEndsNamesWhatItWaitedFor(t *testing.T) {
	f := newFleet(t, false)
	for what, call := range map[string]func(context.Context) error{
		"cluster fleet/paris": func(ctx context.Context) error {
			_, err := f.broker.GetCredential(ctx, parisRef)
			return err
		},
		"provider corp": func(ctx context.Context) error {
			_, err := f.broker.ReportRejected(ctx, Provider("corp"), "1")
			return err
		},
		"clusters": func(ctx context.Context) error {
			_, _, err := f.broker.ListClusters(ctx, "")
			return err
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := call(ctx)
		if !errors.Is(err, context.Canceled) || !strings.HasPrefix(err.Error(), "credbroker: "+what+": context canceled; last: ") {
			t.Errorf("%s: %v", what, err)
		}
	}
	// What the broker has answered by then is not lost.
	failed := fake.Failure(codes.DeadlineExceeded, "RUN_PENDING", "the plugin run continues")
	if last := lastOf(failed, "/s", nil); ReasonOf(last) != ReasonRunPending {
		t.Error(last)
	}
	var untrusted *UntrustedError
	if last := lastOf(context.Canceled, "/s", &UntrustedError{}); !errors.As(last, &untrusted) {
		t.Error(last)
	}
}
