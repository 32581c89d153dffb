package credbroker

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"time"

	pb "github.com/credbroker/credbroker/client/go/credbrokerv1"
	"google.golang.org/grpc/metadata"
)

const (
	firstPause   = 100 * time.Millisecond
	longestPause = 30 * time.Second
	// A broker restarts within a moment, and its clients must be current again within five seconds.
	longestPauseForLost = 2 * time.Second
)

// Messages are what one watch sends.
type messages[T any] interface {
	// Header waits until the broker accepts the watch.
	Header() (metadata.MD, error)
	// Recv waits for the next message.
	Recv() (*T, error)
}

// A follower applies the messages of successive watches to what readers see.
type follower[T any] interface {
	// A watch begins. Its first messages are the complete state.
	begin()
	// Applies a message, and says whether it changed anything.
	apply(*T) (bool, error)
	// The watch ended, or could not begin.
	fail(error)
}

// follow runs one watch after the other until ctx ends.
func follow[T any](
	ctx context.Context, s *shared, limit time.Duration, to follower[T],
	open func(context.Context, pb.CredentialBrokerClient) (messages[T], error),
) {
	var pauses pauses
	for ctx.Err() == nil {
		err := followOnce(ctx, s, limit, to, open, pauses.reset)
		if ctx.Err() != nil {
			return
		}
		to.fail(err)
		select {
		case <-ctx.Done():
		case <-time.After(pauses.next(err, rand.Float64())):
		}
	}
}

// followOnce applies the messages of one watch, and returns the error that ended it.
func followOnce[T any](
	ctx context.Context, s *shared, limit time.Duration, to follower[T],
	open func(context.Context, pb.CredentialBrokerClient) (messages[T], error),
	news func(),
) error {
	client, err := s.link.client()
	if err != nil {
		return err
	}
	watched, cancel := context.WithCancel(ctx)
	defer cancel()
	// The deadline is for the first response. The stream itself has none.
	late := time.AfterFunc(limit, cancel)
	defer late.Stop()
	convert := func(err error) error {
		if errors.Is(err, io.EOF) {
			err = errors.New("the watch ended")
		} else if ctx.Err() == nil && watched.Err() != nil {
			return &TimeoutError{Limit: limit}
		}
		var failed *Error
		if errors.As(err, &failed) {
			return failed
		}
		return fromStatus(err, 0, s.link.socket.String(), s.link.dialError())
	}
	stream, err := open(watched, client)
	if err != nil {
		return convert(err)
	}
	if _, err := stream.Header(); err != nil {
		return convert(err)
	}
	if !late.Stop() {
		return &TimeoutError{Limit: limit}
	}
	to.begin()
	for {
		message, err := stream.Recv()
		if err != nil {
			return convert(err)
		}
		isNew, err := to.apply(message)
		if err != nil {
			return err
		}
		// Only news resets the pause, or a watch that always ends after its first message would loop without one.
		if isNew {
			news()
		}
	}
}

// Pauses double. Half of each is random, so that a thousand watchers do not reconnect at the same moment.
type pauses struct{ attempts uint }

func (p *pauses) reset() { p.attempts = 0 }

// next returns the pause after err; random is in [0, 1).
func (p *pauses) next(err error, random float64) time.Duration {
	lost := mayBeStarting(err)
	longest := longestPause
	if lost {
		longest = longestPauseForLost
	}
	doubled := min(firstPause<<min(p.attempts, 16), longest)
	p.attempts++
	pause := time.Duration(float64(doubled) * (0.5 + random/2))
	// The broker caches its failure that long: an earlier request gets the same answer.
	var failed *Error
	if !lost && errors.As(err, &failed) {
		pause = min(max(pause, failed.RetryAfter), longest)
	}
	return pause
}
