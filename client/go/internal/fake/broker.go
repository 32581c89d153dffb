// Package fake has what the tests need: a broker in this process, and an API server with TLS that checks who asks.
package fake

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	pb "github.com/credbroker/credbroker/client/go/credbrokerv1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// A Broker serves what the test sets, over gRPC on a Unix socket.
type Broker struct {
	pb.UnimplementedCredentialBrokerServer
	// The path of the socket, in a private directory.
	Socket string

	t  testing.TB
	mu sync.Mutex
	// Closed and replaced at each change.
	changed     chan struct{}
	credentials map[string]*pb.WatchCredentialResponse
	failures    map[string]error
	held        map[string]bool
	clusters    map[string]*pb.ClusterState
	hubSynced   bool
	onReport    func(generation string) *pb.WatchCredentialResponse
	minLifetime *durationpb.Duration
	reports     []string
	watches     int
	streams     int
	server      *grpc.Server
}

// NewBroker starts a broker without credentials.
func NewBroker(t testing.TB) *Broker {
	t.Helper()
	// Not t.TempDir: its path can be too long for a socket.
	directory, err := os.MkdirTemp("", "broker")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(directory) })
	b := &Broker{
		t: t, Socket: filepath.Join(directory, "broker.sock"), changed: make(chan struct{}),
		credentials: map[string]*pb.WatchCredentialResponse{}, failures: map[string]error{}, held: map[string]bool{},
		clusters: map[string]*pb.ClusterState{}, hubSynced: true,
	}
	b.Start()
	t.Cleanup(b.Stop)
	return b
}

// Start listens again after Stop.
func (b *Broker) Start() {
	b.t.Helper()
	listener, err := net.Listen("unix", b.Socket)
	if err != nil {
		b.t.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterCredentialBrokerServer(server, b)
	b.mu.Lock()
	b.server = server
	b.mu.Unlock()
	go server.Serve(listener)
}

// Stop ends all calls and connections.
func (b *Broker) Stop() {
	b.mu.Lock()
	server := b.server
	b.mu.Unlock()
	server.Stop()
}

// Set replaces a credential, and sends it to the watches. name is that of the Ref: provider/NAME or
// clusterprofile/NAMESPACE/NAME.
func (b *Broker) Set(name string, credential *pb.Credential, cluster *pb.Cluster) {
	b.change(func() {
		b.credentials[name] = &pb.WatchCredentialResponse{Credential: credential, Cluster: cluster}
		delete(b.failures, name)
		delete(b.held, name)
	})
}

// Fail makes every request for the credential fail, and ends its watches.
func (b *Broker) Fail(name string, err error) {
	b.change(func() { b.failures[name] = err; delete(b.credentials, name); delete(b.held, name) })
}

// Hold makes watches of the credential wait with nothing but their headers, as during a plugin run, until Set or Fail.
func (b *Broker) Hold(name string) {
	b.change(func() { b.held[name] = true })
}

// OnReport sets what a report brings. nil: nothing newer.
func (b *Broker) OnReport(answer func(generation string) *pb.WatchCredentialResponse) {
	b.change(func() { b.onReport = answer })
}

// SetCluster adds or changes a cluster of the fleet.
func (b *Broker) SetCluster(state *pb.ClusterState) {
	b.change(func() { b.clusters[nameOf(state.GetClusterProfile())] = state })
}

// RemoveCluster removes a cluster of the fleet.
func (b *Broker) RemoveCluster(namespace, name string) {
	b.change(func() { delete(b.clusters, namespace+"/"+name) })
}

// SetHub says whether the broker has read its hub.
func (b *Broker) SetHub(synced bool) { b.change(func() { b.hubSynced = synced }) }

// Reports returns the generations that were reported.
func (b *Broker) Reports() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.reports...)
}

// Watches returns the number of open watches of credentials.
func (b *Broker) Watches() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.watches
}

// Streams returns the number of WatchCredentials streams since the broker was made.
func (b *Broker) Streams() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.streams
}

// Wait waits until a condition holds for the number of open watches of credentials.
func (b *Broker) Wait(t testing.TB, done <-chan struct{}, condition func(watches int) bool) {
	t.Helper()
	for {
		b.mu.Lock()
		watches, changed := b.watches, b.changed
		b.mu.Unlock()
		if condition(watches) {
			return
		}
		select {
		case <-changed:
		case <-done:
			t.Fatalf("the broker has %d watches", watches)
		}
	}
}

// Failure returns a status as the broker sends it.
func Failure(code codes.Code, reason, message string, more ...*errdetails.RetryInfo) error {
	made := status.New(code, message+" ("+reason+")")
	info := &errdetails.ErrorInfo{Reason: reason, Domain: "credbroker.io", Metadata: map[string]string{
		"provider": "corp", "id": "abababababab", "cluster": "fleet/paris", "context": "dev", "limit": "",
	}}
	made, err := made.WithDetails(info)
	for _, retry := range more {
		made, err = made.WithDetails(retry)
	}
	if err != nil {
		panic(err)
	}
	return made.Err()
}

func (b *Broker) change(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *Broker) state(name string) (*pb.WatchCredentialResponse, chan struct{}, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	credential, err := b.credentials[name], b.failures[name]
	if credential == nil && err == nil && !b.held[name] {
		err = Failure(codes.NotFound, "UNKNOWN_PROVIDER", "no provider has the name "+name)
	}
	return credential, b.changed, err
}

// MinLifetime is what the last GetCredential needed. nil: it said nothing.
func (b *Broker) MinLifetime() *durationpb.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.minLifetime
}

// GetCredential implements the contract.
func (b *Broker) GetCredential(_ context.Context, request *pb.GetCredentialRequest) (*pb.GetCredentialResponse, error) {
	b.mu.Lock()
	b.minLifetime = request.GetMinLifetime()
	b.mu.Unlock()
	held, _, err := b.state(refName(request.GetRef()))
	if err != nil {
		return nil, err
	}
	return &pb.GetCredentialResponse{Credential: held.GetCredential(), Cluster: held.GetCluster()}, nil
}

// WatchCredential implements the contract.
func (b *Broker) WatchCredential(request *pb.WatchCredentialRequest, stream grpc.ServerStreamingServer[pb.WatchCredentialResponse]) error {
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	return b.follow(stream.Context(), request.GetRef(), stream.Send)
}

// WatchCredentials implements the contract.
func (b *Broker) WatchCredentials(stream grpc.BidiStreamingServer[pb.WatchCredentialsRequest, pb.WatchCredentialsResponse]) error {
	b.change(func() { b.streams++ })
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	var sending sync.Mutex
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	stops := map[uint64]context.CancelFunc{}
	for {
		request, err := stream.Recv()
		if err != nil {
			return err
		}
		for _, number := range request.GetRemove() {
			if stop := stops[number]; stop != nil {
				stop()
			}
		}
		for _, addition := range request.GetAdd() {
			watched, stop := context.WithCancel(ctx)
			stops[addition.GetNumber()] = stop
			send := func(answer *pb.WatchCredentialsResponse) error {
				answer.Number = addition.GetNumber()
				sending.Lock()
				defer sending.Unlock()
				return stream.Send(answer)
			}
			running.Go(func() {
				err := b.follow(watched, addition.GetRef(), func(held *pb.WatchCredentialResponse) error {
					result := &pb.WatchCredentialsResponse_Credential{Credential: held.GetCredential()}
					return send(&pb.WatchCredentialsResponse{Result: result, Cluster: held.GetCluster()})
				})
				if watched.Err() == nil {
					send(&pb.WatchCredentialsResponse{Result: &pb.WatchCredentialsResponse_Failure{Failure: failureOf(err)}})
				}
			})
		}
	}
}

// follow sends a credential and each that replaces it, until ctx ends or there is a failure.
func (b *Broker) follow(ctx context.Context, ref *pb.CredentialRef, send func(*pb.WatchCredentialResponse) error) error {
	b.change(func() { b.watches++ })
	defer b.change(func() { b.watches-- })
	var sent *pb.WatchCredentialResponse
	for {
		held, changed, err := b.state(refName(ref))
		if err != nil {
			return err
		}
		if held != nil && held != sent {
			if err := send(held); err != nil {
				return err
			}
			sent = held
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// failureOf returns a status as a message of a stream.
func failureOf(err error) *pb.Failure {
	from := status.Convert(err)
	failure := &pb.Failure{Message: from.Message()}
	for _, detail := range from.Details() {
		switch info := detail.(type) {
		case *errdetails.ErrorInfo:
			failure.Reason = pb.ErrorReason(pb.ErrorReason_value[info.GetReason()])
			failure.Metadata = info.GetMetadata()
			failure.Message = strings.TrimSuffix(failure.Message, " ("+info.GetReason()+")")
		case *errdetails.RetryInfo:
			failure.RetryAfter = info.GetRetryDelay()
		}
	}
	return failure
}

// ReportRejected implements the contract.
func (b *Broker) ReportRejected(_ context.Context, request *pb.ReportRejectedRequest) (*pb.ReportRejectedResponse, error) {
	name := refName(request.GetRef())
	b.mu.Lock()
	b.reports = append(b.reports, request.GetGeneration())
	answer := b.onReport
	b.mu.Unlock()
	outcome := pb.ReportRejectedResponse_OUTCOME_NOTHING_NEWER
	if answer != nil {
		if next := answer(request.GetGeneration()); next != nil {
			b.Set(name, next.GetCredential(), next.GetCluster())
			outcome = pb.ReportRejectedResponse_OUTCOME_REPLACED
		}
	}
	held, _, err := b.state(name)
	if err != nil {
		return nil, err
	}
	return &pb.ReportRejectedResponse{Credential: held.GetCredential(), Cluster: held.GetCluster(), Outcome: outcome, RetryAfter: durationpb.New(0)}, nil
}

// ListClusters implements the contract, with pages of two.
func (b *Broker) ListClusters(_ context.Context, request *pb.ListClustersRequest) (*pb.ListClustersResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.sorted(request.GetNamespace(), request.Namespace == nil)
	answer := &pb.ListClustersResponse{Hub: &pb.HubState{Synced: b.hubSynced}}
	for i, state := range all {
		name := nameOf(state.GetClusterProfile())
		if name <= request.GetPageToken() {
			continue
		}
		answer.Clusters = append(answer.Clusters, state)
		if len(answer.Clusters) == 2 && i < len(all)-1 {
			answer.NextPageToken = &name
			break
		}
	}
	return answer, nil
}

// WatchClusters implements the contract.
func (b *Broker) WatchClusters(request *pb.WatchClustersRequest, stream grpc.ServerStreamingServer[pb.WatchClustersResponse]) error {
	sent := map[string]*pb.ClusterState{}
	for first := true; ; first = false {
		b.mu.Lock()
		message := &pb.WatchClustersResponse{Complete: true, Hub: &pb.HubState{Synced: b.hubSynced}}
		known := map[string]*pb.ClusterState{}
		for _, state := range b.sorted(request.GetNamespace(), request.Namespace == nil) {
			name := nameOf(state.GetClusterProfile())
			known[name] = state
			if sent[name] != state {
				message.Changed = append(message.Changed, state)
			}
		}
		for name, state := range sent {
			if known[name] == nil {
				message.Removed = append(message.Removed, state.GetClusterProfile())
			}
		}
		sent = known
		changed := b.changed
		b.mu.Unlock()
		if first || len(message.Changed)+len(message.Removed) > 0 {
			if err := stream.Send(message); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}
