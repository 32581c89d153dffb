package credbroker

import (
	"context"
	"errors"
	"io"
	"sync"

	pb "github.com/credbroker/credbroker/client/go/credbrokerv1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

const (
	// The most bytes of a reference that shares a stream with others: the broker takes messages of 64 KiB there.
	sharedSize = 60 * 1024
	// The most numbers that one request removes, each of up to eleven bytes.
	removals = 1000
)

// references are the watches of all followed credentials. They share a WatchCredentials stream, which is open while there are
// any.
type references struct {
	tasks *tasks

	mu     sync.Mutex
	stream *referenceStream
}

// A referenceStream is one WatchCredentials stream.
type referenceStream struct {
	cancel context.CancelFunc
	// Closed when the broker has accepted the stream, or refused it.
	opened chan struct{}
	// Has a value when there is something to send.
	wake chan struct{}

	mu      sync.Mutex
	watches map[uint64]*referenceWatch
	// What was not sent yet.
	add    []*pb.WatchCredentialsRequest_Addition
	remove []uint64
	// The number that was given last. None is used twice, so that a late answer is not taken for another one.
	last uint64
	// What has ended the stream.
	err error
}

// A referenceWatch is the watch of one reference: the [messages] of a WatchCredential.
type referenceWatch struct {
	stream *referenceStream
	ctx    context.Context
	number uint64
	// Has a value after each change of what follows, which the lock of the stream guards.
	news   chan struct{}
	newest *pb.WatchCredentialResponse
	err    error
}

// watch watches a reference until ctx ends.
func (r *references) watch(ctx context.Context, client pb.CredentialBrokerClient, ref *pb.CredentialRef) *referenceWatch {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stream == nil || r.stream.isOver() {
		r.stream = r.open(client)
	}
	stream := r.stream
	watch := stream.watch(ctx, ref)
	context.AfterFunc(ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if stream.drop(watch) == 0 {
			stream.cancel()
			if r.stream == stream {
				r.stream = nil
			}
		}
	})
	return watch
}

func (r *references) open(client pb.CredentialBrokerClient) *referenceStream {
	ctx, cancel := context.WithCancel(r.tasks.ctx)
	stream := &referenceStream{
		cancel: cancel, opened: make(chan struct{}), wake: make(chan struct{}, 1), watches: map[uint64]*referenceWatch{},
	}
	started := r.tasks.start(func() {
		defer cancel()
		stream.end(stream.run(ctx, client))
	})
	if !started {
		cancel()
		stream.end(ErrClosed)
	}
	return stream
}

// run applies the answers, and returns the error that ended the stream.
func (s *referenceStream) run(ctx context.Context, client pb.CredentialBrokerClient) error {
	stream, err := client.WatchCredentials(ctx)
	if err != nil {
		return err
	}
	var sending sync.WaitGroup
	defer sending.Wait()
	defer s.cancel()
	sending.Go(func() {
		for ctx.Err() == nil {
			// Recv returns the error of Send too.
			if request := s.request(); request != nil && stream.Send(request) != nil {
				return
			} else if request != nil {
				continue
			}
			select {
			case <-s.wake:
			case <-ctx.Done():
			}
		}
	})
	if _, err := stream.Header(); err != nil {
		return err
	}
	close(s.opened)
	for {
		answer, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return errors.New("the watch ended")
		}
		if err != nil {
			return err
		}
		s.receive(answer)
	}
}

func (s *referenceStream) watch(ctx context.Context, ref *pb.CredentialRef) *referenceWatch {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	watch := &referenceWatch{stream: s, ctx: ctx, number: s.last, news: make(chan struct{}, 1), err: s.err}
	s.watches[watch.number] = watch
	s.add = append(s.add, &pb.WatchCredentialsRequest_Addition{Number: watch.number, Ref: ref})
	signal(s.wake)
	return watch
}

// drop ends a watch, and returns how many there are still.
func (s *referenceStream) drop(watch *referenceWatch) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watches, watch.number)
	for i, addition := range s.add {
		if addition.Number == watch.number {
			s.add = append(s.add[:i:i], s.add[i+1:]...)
			return len(s.watches)
		}
	}
	// The broker has ended one that failed itself.
	if watch.err == nil {
		s.remove = append(s.remove, watch.number)
		signal(s.wake)
	}
	return len(s.watches)
}

// request returns what is sent next, or nil.
func (s *referenceStream) request() *pb.WatchCredentialsRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	count, size := 0, 0
	for _, addition := range s.add {
		size += proto.Size(addition) + 8
		if size > sharedSize && count > 0 {
			break
		}
		count++
	}
	removed := min(len(s.remove), removals)
	if count+removed == 0 {
		return nil
	}
	request := &pb.WatchCredentialsRequest{Add: s.add[:count:count], Remove: s.remove[:removed:removed]}
	s.add, s.remove = s.add[count:], s.remove[removed:]
	return request
}

func (s *referenceStream) receive(answer *pb.WatchCredentialsResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Of a reference that was just dropped, an answer may be on its way.
	watch := s.watches[answer.GetNumber()]
	if watch == nil {
		return
	}
	if failure := answer.GetFailure(); failure != nil {
		watch.err = failureFrom(failure)
	} else {
		watch.newest = &pb.WatchCredentialResponse{Credential: answer.GetCredential(), Cluster: answer.GetCluster()}
	}
	signal(watch.news)
}

func (s *referenceStream) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	for _, watch := range s.watches {
		if watch.err == nil {
			watch.err = err
		}
		signal(watch.news)
	}
	select {
	case <-s.opened:
	default:
		close(s.opened)
	}
}

func (s *referenceStream) isOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil
}

// Header waits until the broker accepts the stream.
func (w *referenceWatch) Header() (metadata.MD, error) {
	select {
	case <-w.stream.opened:
	case <-w.ctx.Done():
		return nil, status.FromContextError(w.ctx.Err()).Err()
	}
	w.stream.mu.Lock()
	defer w.stream.mu.Unlock()
	return nil, w.stream.err
}

// Recv returns the newest message, then the error that ended the watch.
func (w *referenceWatch) Recv() (*pb.WatchCredentialResponse, error) {
	for {
		if message, err := w.take(); message != nil || err != nil {
			return message, err
		}
		select {
		case <-w.news:
		case <-w.ctx.Done():
			return nil, status.FromContextError(w.ctx.Err()).Err()
		}
	}
}

func (w *referenceWatch) take() (*pb.WatchCredentialResponse, error) {
	w.stream.mu.Lock()
	defer w.stream.mu.Unlock()
	if message := w.newest; message != nil {
		w.newest = nil
		return message, nil
	}
	return nil, w.err
}

// signal puts a value in a channel that has room for one.
func signal(news chan<- struct{}) {
	select {
	case news <- struct{}{}:
	default:
	}
}
