package fake

import (
	"context"
	"sync/atomic"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

type openWatchesKey struct{}

// Counters give each connection a count of its watches.
type counters struct{}

func (counters) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	return context.WithValue(ctx, openWatchesKey{}, new(atomic.Int64))
}

func (counters) HandleConn(context.Context, stats.ConnStats)                     {}
func (counters) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }
func (counters) HandleRPC(context.Context, stats.RPCStats)                       {}

func openWatches(ctx context.Context) *atomic.Int64 {
	return ctx.Value(openWatchesKey{}).(*atomic.Int64)
}

func tooManyWatches() error {
	made, err := status.New(codes.ResourceExhausted, "this connection has too many watches (OVERLOADED)").WithDetails(&errdetails.ErrorInfo{
		Reason: "OVERLOADED", Domain: "credbroker.io", Metadata: map[string]string{"limit": "watches of a connection"},
	})
	if err != nil {
		panic(err)
	}
	return made.Err()
}
