package credbroker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/credbroker/credbroker/client/go/credbrokerv1"
	"google.golang.org/protobuf/proto"
)

// A followed credential is what all Sources with an equal Ref share.
type followed struct {
	shared *shared
	ref    Ref
	ctx    context.Context
	stop   context.CancelCauseFunc
	// The Sources, and the endpoints of the configs that were made. Guarded by the lock of shared.
	users   int
	targets []*target

	current atomic.Pointer[Credential]

	mu      sync.Mutex
	failure error
	// Closed and replaced at each change of anything below or above.
	changed   chan struct{}
	rejection rejection
	reporting bool
	listeners map[*target]struct{}
	// Belongs to the credentials that come from now on.
	withdrawn *atomic.Bool
}

func newFollowed(s *shared, ref Ref) *followed {
	ctx, stop := context.WithCancelCause(s.ctx)
	f := &followed{
		shared: s, ref: ref, ctx: ctx, stop: stop,
		changed: make(chan struct{}), listeners: map[*target]struct{}{}, withdrawn: new(atomic.Bool),
	}
	s.start(func() {
		message := ref.toMessage()
		follow(ctx, s, answerLimit, f, func(
			ctx context.Context, client pb.CredentialBrokerClient,
		) (messages[pb.WatchCredentialResponse], error) {
			if proto.Size(message) > sharedSize {
				return client.WatchCredential(ctx, &pb.WatchCredentialRequest{Ref: message})
			}
			return s.link.references.watch(ctx, client, message), nil
		})
	})
	return f
}

// valid returns the newest credential, unless it has expired or was dropped.
func (f *followed) valid() *Credential {
	newest := f.current.Load()
	if newest == nil || !newest.isValid(f.shared.now()) {
		return nil
	}
	return newest
}

// ready waits for what current returns. Its caller limits ctx.
func (f *followed) ready(ctx context.Context, patience time.Duration, current func() *Credential) (*Credential, error) {
	start := time.NewTimer(patience)
	defer start.Stop()
	started := false
	for {
		changed, failure := f.state()
		if credential := current(); credential != nil {
			return credential, nil
		}
		if failure != nil && (started || !mayBeStarting(failure) && !withdraws(failure)) {
			return nil, failure
		}
		select {
		case <-changed:
		case <-start.C:
			started = true
		case <-f.ctx.Done():
			return nil, context.Cause(f.ctx)
		case <-ctx.Done():
			return nil, stopped(ctx, f.ref.said, failure)
		}
	}
}

// state returns a channel that is closed at the next change. Read it before what it announces.
func (f *followed) state() (<-chan struct{}, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed, f.failure
}

// The caller holds the lock.
func (f *followed) notify() {
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *followed) listen(target *target) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listeners[target] = struct{}{}
}

func (f *followed) unlisten(target *target) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.listeners, target)
}

// The broker accepts the watch, so it runs, and the first credential of another definition is waited for.
func (f *followed) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if mayBeStarting(f.failure) || withdraws(f.failure) {
		f.failure = nil
		f.notify()
	}
}

func (f *followed) apply(message *pb.WatchCredentialResponse) (bool, error) {
	credential, err := receive(message.GetCredential(), message.GetCluster(), f.shared.now())
	if err != nil {
		return false, err
	}
	f.mu.Lock()
	isNew := !same(f.current.Load(), credential)
	credential.withdrawn = f.withdrawn
	f.current.Store(credential)
	f.failure = nil
	f.notify()
	listeners := make([]*target, 0, len(f.listeners))
	for target := range f.listeners {
		listeners = append(listeners, target)
	}
	f.mu.Unlock()
	for _, target := range listeners {
		target.rotate()
	}
	return isNew, nil
}

func (f *followed) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if withdraws(err) {
		// Clients of endpoints that the cluster has left hold credentials too.
		f.withdrawn.Store(true)
		f.withdrawn = new(atomic.Bool)
		f.current.Store(nil)
	}
	f.failure = err
	f.notify()
}

// A plugin that does not receive the cluster issues the same credential before and after a move.
func same(before, after *Credential) bool {
	return before != nil && before.generation == after.generation && before.cluster.equal(after.cluster)
}
