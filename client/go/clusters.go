package credbroker

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	pb "github.com/credbroker/credbroker/client/go/credbrokerv1"
)

// A ClusterEvent is a change of one cluster. Changes that come together are one event.
type ClusterEvent struct {
	// What happened.
	Type ClusterEventType
	// The cluster; of one that was removed, its last state.
	Cluster *ClusterState
}

// A ClusterEventType says what happened to a cluster.
type ClusterEventType string

// The types of events.
const (
	ClusterAdded   ClusterEventType = "ADDED"
	ClusterChanged ClusterEventType = "CHANGED"
	ClusterRemoved ClusterEventType = "REMOVED"
)

// Clusters are the clusters of the fleet as the broker knows them. They follow the broker and reconnect after a restart.
// Known clusters stay meanwhile, and are removed only after the broker has read its hub. [Broker.Clusters] returns them.
type Clusters struct {
	broker    *Broker
	namespace string
	ctx       context.Context
	stop      context.CancelFunc

	mu       sync.Mutex
	known    map[ClusterName]*ClusterState
	hub      HubState
	complete bool
	failure  error
	changed  chan struct{}
	// The clusters that this watch has sent, until the initial list is complete and the others have been removed.
	listed map[ClusterName]struct{}
	// This watch has sent all clusters.
	watchComplete bool
}

// ListClusters returns the clusters of a namespace, or of all with the empty string, sorted by namespace and name.
func (b *Broker) ListClusters(ctx context.Context, namespace string) ([]*ClusterState, HubState, error) {
	var clusters []*ClusterState
	request := &pb.ListClustersRequest{Namespace: optional(namespace)}
	for {
		page, err := call(ctx, b.shared, b.limit, clustersOf(namespace), func(ctx context.Context, client pb.CredentialBrokerClient) (*pb.ListClustersResponse, error) {
			return client.ListClusters(ctx, request)
		})
		if err != nil {
			return nil, HubState{}, err
		}
		for _, message := range page.GetClusters() {
			clusters = append(clusters, clusterStateFrom(message))
		}
		if page.NextPageToken == nil {
			return clusters, hubFrom(page.GetHub()), nil
		}
		request.PageToken = page.NextPageToken
	}
}

// Clusters follows the clusters of a namespace, or of all with the empty string, until Close. It does not wait for the
// broker.
func (b *Broker) Clusters(namespace string) *Clusters {
	ctx, stop := context.WithCancel(b.ctx)
	c := &Clusters{
		broker: b, namespace: namespace, ctx: ctx, stop: stop,
		known: map[ClusterName]*ClusterState{}, changed: make(chan struct{}),
	}
	b.start(func() {
		request := &pb.WatchClustersRequest{Namespace: optional(namespace)}
		follow(ctx, b.shared, b.limit, c, func(
			ctx context.Context, client pb.CredentialBrokerClient,
		) (messages[pb.WatchClustersResponse], error) {
			return client.WatchClusters(ctx, request)
		})
	})
	return c
}

// clustersOf says in errors what is waited for.
func clustersOf(namespace string) string {
	if namespace == "" {
		return "clusters"
	}
	return "clusters of " + namespace
}

// Close stops following. The channels of Events are closed.
func (c *Clusters) Close() { c.stop() }

// List returns all clusters, sorted by namespace and name. It is empty before [Clusters.Ready].
func (c *Clusters) List() []*ClusterState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.SortedFunc(maps.Values(c.known), func(a, b *ClusterState) int {
		return strings.Compare(a.ClusterName.Namespace+"\x00"+a.Name, b.ClusterName.Namespace+"\x00"+b.Name)
	})
}

// Get returns the cluster of this name, and whether it is known.
func (c *Clusters) Get(name ClusterName) (*ClusterState, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	state, ok := c.known[name]
	return state, ok
}

// Hub returns how complete the broker's own knowledge is.
func (c *Clusters) Hub() HubState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hub
}

// Failure returns why there is nothing newer, if the last watch failed. For logs and health checks.
func (c *Clusters) Failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failure
}

// Ready waits until the broker has sent all clusters that it knows: up to five seconds for a broker that is starting, and
// up to the limit of [WithTimeout] for one that does not answer. It returns the error of the last attempt; the watch
// continues to try. If ctx ends first, the error is both that of ctx and that of the last attempt.
func (c *Clusters) Ready(ctx context.Context) error {
	ctx, cancel := c.broker.limited(ctx)
	defer cancel()
	start := time.NewTimer(brokerStart)
	defer start.Stop()
	started := false
	for {
		c.mu.Lock()
		changed, failure, complete := c.changed, c.failure, c.complete
		c.mu.Unlock()
		if complete {
			return nil
		}
		if failure != nil && (started || !mayBeStarting(failure)) {
			return failure
		}
		select {
		case <-changed:
		case <-start.C:
			started = true
		case <-c.ctx.Done():
			return ErrClosed
		case <-ctx.Done():
			return stopped(ctx, clustersOf(c.namespace), failure)
		}
	}
}

// Events returns a channel with one event for each cluster that exists, and then the changes. Changes of one cluster that
// come while the channel is not read are one event. The channel is closed when ctx ends or Close is called.
func (c *Clusters) Events(ctx context.Context) <-chan ClusterEvent {
	events := make(chan ClusterEvent)
	started := c.broker.start(func() {
		defer close(events)
		seen := map[ClusterName]*ClusterState{}
		pending, changed := c.since(seen)
		for {
			var deliver chan<- ClusterEvent
			var next ClusterEvent
			if len(pending) > 0 {
				deliver, next = events, pending[0]
			}
			select {
			case deliver <- next:
				pending = pending[1:]
				if next.Type == ClusterRemoved {
					delete(seen, next.Cluster.ClusterName)
				} else {
					seen[next.Cluster.ClusterName] = next.Cluster
				}
			case <-changed:
				pending, changed = c.since(seen)
			case <-c.ctx.Done():
				return
			case <-ctx.Done():
				return
			}
		}
	})
	if !started {
		close(events)
	}
	return events
}

// since returns the events that lead from seen to now, and a channel that is closed at the next change.
func (c *Clusters) since(seen map[ClusterName]*ClusterState) ([]ClusterEvent, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return differences(seen, c.known), c.changed
}

func (c *Clusters) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listed, c.watchComplete = map[ClusterName]struct{}{}, false
}

func (c *Clusters) apply(message *pb.WatchClustersResponse) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failure = nil
	c.watchComplete = c.watchComplete || message.GetComplete()
	c.complete = c.complete || c.watchComplete
	c.hub = hubFrom(message.GetHub())
	isNew := false
	for _, changed := range message.GetChanged() {
		state := clusterStateFrom(changed)
		if c.listed != nil {
			c.listed[state.ClusterName] = struct{}{}
		}
		if known := c.known[state.ClusterName]; known == nil || known.digest != state.digest {
			c.known[state.ClusterName] = state
			isNew = true
		}
	}
	for _, removed := range message.GetRemoved() {
		name := ClusterName{removed.GetNamespace(), removed.GetName()}
		delete(c.listed, name)
		isNew = isNew || c.known[name] != nil
		delete(c.known, name)
	}
	// A broker that has just started may not have read its hub: then a missing cluster is not a removed one.
	if c.watchComplete && c.hub.Synced && c.listed != nil {
		for name := range c.known {
			if _, ok := c.listed[name]; !ok {
				delete(c.known, name)
				isNew = true
			}
		}
		c.listed = nil
	}
	c.notify()
	return isNew, nil
}

func (c *Clusters) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failure = err
	c.notify()
}

// The caller holds the lock.
func (c *Clusters) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// The events that lead from before to after.
func differences(before, after map[ClusterName]*ClusterState) []ClusterEvent {
	var events []ClusterEvent
	for name, state := range before {
		if after[name] == nil {
			events = append(events, ClusterEvent{ClusterRemoved, state})
		}
	}
	for name, state := range after {
		switch known := before[name]; known {
		case state:
		case nil:
			events = append(events, ClusterEvent{ClusterAdded, state})
		default:
			events = append(events, ClusterEvent{ClusterChanged, state})
		}
	}
	return events
}
