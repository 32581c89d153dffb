// Package multicluster is a provider for multicluster-runtime: it engages each cluster of the fleet of a credbroker. Copy
// it, or use it as it is.
package multicluster

import (
	"context"
	"fmt"
	"sync"

	credbroker "github.com/credbroker/credbroker/client/go"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/multicluster-runtime/pkg/clusters"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

var (
	_ multicluster.Provider         = &Provider{}
	_ multicluster.ProviderRunnable = &Provider{}
)

// A Provider engages the clusters that the broker knows, by their names NAMESPACE/NAME. A rotation of a credential changes
// nothing; a cluster whose endpoint moves is engaged again.
type Provider struct {
	clusters.Clusters[cluster.Cluster]
	broker    *credbroker.Broker
	namespace string
	options   []cluster.Option
}

// New returns a provider of the clusters of a namespace, or of all with the empty string.
func New(broker *credbroker.Broker, namespace string, options ...cluster.Option) *Provider {
	p := &Provider{Clusters: clusters.New[cluster.Cluster](), broker: broker, namespace: namespace, options: options}
	p.ErrorHandler = log.Log.WithName("credbroker").Error
	return p
}

// Start implements multicluster.ProviderRunnable. It returns when ctx ends.
func (p *Provider) Start(ctx context.Context, aware multicluster.Aware) error {
	fleet := p.broker.Clusters(p.namespace)
	defer fleet.Close()
	var followers sync.WaitGroup
	defer followers.Wait()
	leave := map[credbroker.ClusterName]context.CancelFunc{}
	for event := range fleet.Events(ctx) {
		name := event.Cluster.ClusterName
		stop, followed := leave[name]
		switch {
		case event.Type == credbroker.ClusterRemoved && followed:
			stop()
			delete(leave, name)
		case event.Type != credbroker.ClusterRemoved && !followed && event.Cluster.Cluster != nil:
			followed, stop := context.WithCancel(ctx)
			leave[name] = stop
			followers.Go(func() { p.follow(followed, name, aware) })
		}
	}
	for _, stop := range leave {
		stop()
	}
	return nil
}

// follow engages one cluster, and again for each of its endpoints, until ctx ends.
func (p *Provider) follow(ctx context.Context, name credbroker.ClusterName, aware multicluster.Aware) {
	engaged := multicluster.ClusterName(name.String())
	for config := range p.broker.RESTConfigs(ctx, name.Ref()) {
		err := func() error {
			made, err := cluster.New(config, p.options...)
			if err != nil {
				return fmt.Errorf("making the client: %w", err)
			}
			return p.AddOrReplace(ctx, engaged, made, aware)
		}()
		if err != nil {
			p.ErrorHandler(err, "the cluster is not engaged", "cluster", engaged)
		}
	}
	p.Remove(engaged)
	p.broker.Forget(name.Ref())
}
