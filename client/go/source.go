package credbroker

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	// Time for a broker that is starting.
	brokerStart = 5 * time.Second
	// Time for the plugin run that a rejection starts, and for its credential to arrive.
	replacement = 10 * time.Second
)

// A Source has the current credential. It follows the broker through rotations and restarts, and keeps the last valid
// credential meanwhile, until it expires. Only when the broker reports that the provider was changed or removed
// ([ReasonProviderChanged]), the credential is dropped immediately: no earlier credential is used again.
// [Broker.Source] returns it. Close it.
type Source struct {
	broker   *Broker
	followed *followed
	ctx      context.Context
	stop     context.CancelCauseFunc
	closed   sync.Once
}

func newSource(b *Broker, ref Ref) *Source {
	s := &Source{broker: b, followed: b.shared.follow(ref)}
	s.ctx, s.stop = context.WithCancelCause(s.followed.ctx)
	return s
}

// unlessClosed closes a Source that was made while its Broker was closed.
func (s *Source) unlessClosed() *Source {
	if s.broker.ctx.Err() != nil {
		s.Close()
	}
	return s
}

// Close ends the Source, its channels, and the clients of its configs. The broker is followed until the last Source with an
// equal Ref is closed, and the clients work until then.
func (s *Source) Close() {
	s.closed.Do(func() {
		s.stop(ErrClosed)
		s.broker.mu.Lock()
		delete(s.broker.sources, s)
		s.broker.mu.Unlock()
		s.followed.leave()
	})
}

// Ref returns what the Source follows.
func (s *Source) Ref() Ref { return s.followed.ref }

// Current returns the newest credential, or nil before the first one and when the last one expired or was dropped without a
// replacement. It does not wait.
func (s *Source) Current() *Credential {
	if s.ctx.Err() != nil {
		return nil
	}
	return s.followed.valid()
}

// Failure returns why there is no newer credential, if the last attempt to get one failed. For logs and health checks.
func (s *Source) Failure() error {
	_, failure := s.followed.state()
	return failure
}

// Ready waits until there is a credential: up to five seconds for a broker that is starting, and for a plugin run as long as
// [WithTimeout] says. It returns the error of the last attempt; the Source continues to try. If ctx ends first, the error is
// both that of ctx and that of the last attempt.
func (s *Source) Ready(ctx context.Context) (*Credential, error) {
	ctx, cancel := s.broker.limited(ctx)
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer context.AfterFunc(s.ctx, func() { end(ErrClosed) })()
	return s.followed.ready(ctx, brokerStart, s.Current)
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
			changed, _ := s.followed.state()
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
func (s *Source) Reject(generation string) { s.followed.reject(generation) }

// Replace is Reject, and waits up to ten seconds for the credential to use instead. It returns nil if the broker has
// nothing newer, or does not answer.
func (s *Source) Replace(ctx context.Context, generation string) *Credential {
	s.Reject(generation)
	return s.followed.replaced(ctx, generation, s.Current)
}

// String names the credential and its generation.
func (s *Source) String() string { return fmt.Sprintf("%s: %s", s.Ref(), s.Current()) }

// GoString returns the same as String.
func (s *Source) GoString() string { return "credbroker.Source(" + s.String() + ")" }
