package credbroker

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/credbroker/credbroker/client/go/credbrokerv1"
	"google.golang.org/grpc"
)

const (
	// Time for a broker that is starting.
	brokerStart = 5 * time.Second
	// Time for the plugin run that a rejection starts, and for its credential to arrive.
	replacement = 10 * time.Second
	// Between two reports of one source. The broker limits its plugin runs; this limits the calls.
	betweenReports = time.Second
)

// A Source has the current credential. It follows the broker through rotations and restarts, and keeps the last valid
// credential meanwhile, until it expires. Only when the broker reports that the provider was changed or removed
// ([ReasonProviderChanged]), the credential is dropped at once: no credential of the earlier definition is used again.
// [Broker.Source] returns it.
type Source struct {
	broker *Broker
	ref    Ref
	ctx    context.Context
	stop   context.CancelCauseFunc

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

// A rejection is the report that is pending or was answered. There is one at a time, however many requests were rejected.
type rejection struct {
	generation string
	reported   bool
	replaced   bool
}

func newSource(b *Broker, ref Ref) *Source {
	ctx, stop := context.WithCancelCause(b.ctx)
	s := &Source{
		broker: b, ref: ref, ctx: ctx, stop: stop,
		changed: make(chan struct{}), listeners: map[*target]struct{}{}, withdrawn: new(atomic.Bool),
	}
	b.start(func() {
		request := &pb.WatchCredentialRequest{Ref: ref.toMessage()}
		follow(ctx, b, s, func(
			ctx context.Context, client pb.CredentialBrokerClient,
		) (grpc.ServerStreamingClient[pb.WatchCredentialResponse], error) {
			return client.WatchCredential(ctx, request)
		})
	})
	return s
}

// Ref returns what the Source follows.
func (s *Source) Ref() Ref { return s.ref }

// Current returns the newest credential, or nil before the first one and when the last one expired or was dropped without a
// replacement. It does not wait.
func (s *Source) Current() *Credential {
	newest := s.current.Load()
	if newest == nil || !newest.isValid(s.broker.now()) {
		return nil
	}
	return newest
}

// Failure returns why there is no newer credential, if the last attempt to get one failed. For logs and health checks.
func (s *Source) Failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

// Ready waits until there is a credential: up to five seconds for a broker that is starting, and for a plugin run as long as
// [WithTimeout] says. It returns the error of the last attempt; the Source continues to try.
func (s *Source) Ready(ctx context.Context) (*Credential, error) {
	ctx, cancel := s.broker.limited(ctx)
	defer cancel()
	return s.ready(ctx, brokerStart, s.Current)
}

func (s *Source) ready(ctx context.Context, patience time.Duration, current func() *Credential) (*Credential, error) {
	start := time.NewTimer(patience)
	defer start.Stop()
	started := false
	for {
		changed, failure := s.state()
		if credential := current(); credential != nil {
			return credential, nil
		}
		if failure != nil && (started || !mayBeStarting(failure) && !endsDefinition(failure)) {
			return nil, failure
		}
		select {
		case <-changed:
		case <-start.C:
			started = true
		case <-s.ctx.Done():
			return nil, context.Cause(s.ctx)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Changes returns a channel with the current credential, then one for each change of the generation or of its cluster.
// Changes that come while the channel is not read are skipped, except the newest. The channel is closed when ctx or the
// Source ends.
func (s *Source) Changes(ctx context.Context) <-chan *Credential {
	changes := make(chan *Credential)
	started := s.broker.start(func() {
		defer close(changes)
		var sent *Credential
		for {
			changed, _ := s.state()
			newest := s.Current()
			var deliver chan<- *Credential
			if newest != nil && !same(sent, newest) {
				deliver = changes
			}
			select {
			case deliver <- newest:
				sent = newest
			case <-changed:
			case <-s.ctx.Done():
				return
			case <-ctx.Done():
				return
			}
		}
	})
	if !started {
		close(changes)
	}
	return changes
}

// Reject reports that the API server answered 401 to generation. It does not wait. Several reports of one generation are
// sent as one, and a report of a generation that is no longer current is not sent. The replacement arrives as any rotation
// does.
func (s *Source) Reject(generation string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	newest := s.current.Load()
	if newest == nil || newest.generation != generation || s.rejection.generation == generation {
		return
	}
	s.rejection = rejection{generation: generation}
	if !s.reporting {
		s.reporting = s.broker.start(s.report)
	}
}

// Replace is Reject, and waits up to ten seconds for the credential to use instead. It returns nil if the broker has
// nothing newer, or does not answer.
func (s *Source) Replace(ctx context.Context, generation string) *Credential {
	s.Reject(generation)
	return s.replaced(ctx, generation, s.Current)
}

func (s *Source) replaced(ctx context.Context, generation string, current func() *Credential) *Credential {
	limit := time.NewTimer(replacement)
	defer limit.Stop()
	for {
		changed, _ := s.state()
		newest := current()
		if newest == nil || newest.generation != generation {
			return newest
		}
		// Another rejection, or none: this one was answered, and the time until the next report has passed.
		if last := s.lastRejection(); last.generation != generation || last.reported && !last.replaced {
			return nil
		}
		select {
		case <-changed:
		case <-limit.C:
			return nil
		case <-s.ctx.Done():
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// String names the credential and its generation.
func (s *Source) String() string { return fmt.Sprintf("%s: %s", s.ref, s.Current()) }

// GoString returns the same as String.
func (s *Source) GoString() string { return "credbroker.Source(" + s.String() + ")" }

// report sends the reports of rejected generations, one at a time. The credential itself arrives over the watch, because
// with two writers an old answer could overtake a new message.
func (s *Source) report() {
	for {
		s.mu.Lock()
		rejected := s.rejection
		if rejected.generation == "" || rejected.reported {
			s.reporting = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		answer, err := s.broker.ReportRejected(s.ctx, s.ref, rejected.generation)
		reported := rejection{generation: rejected.generation, reported: true}
		reported.replaced = err == nil && answer.Credential.generation != rejected.generation
		s.replaceRejection(rejected, reported)
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(betweenReports):
		}
		// One that brought another credential stays until that has arrived.
		if !reported.replaced {
			s.replaceRejection(reported, rejection{})
		}
	}
}

// replaceRejection does nothing if another generation was rejected meanwhile.
func (s *Source) replaceRejection(before, after rejection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rejection == before {
		s.rejection = after
		s.notify()
	}
}

func (s *Source) lastRejection() rejection {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rejection
}

// state returns a channel that is closed at the next change. Read it before what it announces.
func (s *Source) state() (<-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed, s.failure
}

// The caller holds the lock.
func (s *Source) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Source) listen(target *target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners[target] = struct{}{}
}

func (s *Source) unlisten(target *target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, target)
}

// The broker accepts the watch, so it runs, and the first credential of another definition is waited for.
func (s *Source) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if mayBeStarting(s.failure) || endsDefinition(s.failure) {
		s.failure = nil
		s.notify()
	}
}

func (s *Source) apply(message *pb.WatchCredentialResponse) (bool, error) {
	credential, err := receive(message.GetCredential(), message.GetCluster(), s.broker.now())
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	isNew := !same(s.current.Load(), credential)
	credential.withdrawn = s.withdrawn
	s.current.Store(credential)
	s.failure = nil
	s.notify()
	listeners := make([]*target, 0, len(s.listeners))
	for target := range s.listeners {
		listeners = append(listeners, target)
	}
	s.mu.Unlock()
	for _, target := range listeners {
		target.rotate()
	}
	return isNew, nil
}

func (s *Source) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if endsDefinition(err) {
		// Clients of endpoints that the cluster has left hold credentials too.
		s.withdrawn.Store(true)
		s.withdrawn = new(atomic.Bool)
		s.current.Store(nil)
	}
	s.failure = err
	s.notify()
}

// A plugin that does not receive the cluster issues the same credential before and after a move.
func same(before, after *Credential) bool {
	return before != nil && before.generation == after.generation && before.cluster.equal(after.cluster)
}
