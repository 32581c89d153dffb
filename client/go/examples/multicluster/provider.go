// Package multicluster is a provider for multicluster-runtime: it engages each cluster of the fleet of a credbroker. Copy
// it, or use it as it is.
package multicluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	credbroker "github.com/credbroker/credbroker/client/go"
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

var (
	_ multicluster.Provider         = &Provider{}
	_ multicluster.ProviderRunnable = &Provider{}
)

// A Provider engages the clusters that the broker knows, by their names NAMESPACE/NAME. A rotation of a credential changes
// nothing; a cluster whose endpoint moves is engaged again.
type Provider struct {
	broker    *credbroker.Broker
	namespace string
	options   []cluster.Option
	// The time until a cluster that failed is engaged again.
	retry time.Duration

	mu       sync.Mutex
	clusters map[multicluster.ClusterName]cluster.Cluster
	indexes  []func(context.Context, cluster.Cluster) error
}

// New returns a provider of the clusters of a namespace, or of all with the empty string.
func New(broker *credbroker.Broker, namespace string, options ...cluster.Option) *Provider {
	known := map[multicluster.ClusterName]cluster.Cluster{}
	return &Provider{broker: broker, namespace: namespace, options: options, retry: 10 * time.Second, clusters: known}
}

// Get implements multicluster.Provider.
func (p *Provider) Get(_ context.Context, name multicluster.ClusterName) (cluster.Cluster, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if found, ok := p.clusters[name]; ok {
		return found, nil
	}
	return nil, fmt.Errorf("cluster %s: %w", name, multicluster.ErrClusterNotFound)
}

// IndexField implements multicluster.Provider. Clusters that are engaged later get the index too.
func (p *Provider) IndexField(ctx context.Context, object client.Object, field string, extract client.IndexerFunc) error {
	index := func(ctx context.Context, of cluster.Cluster) error {
		return of.GetFieldIndexer().IndexField(ctx, object, field, extract)
	}
	p.mu.Lock()
	p.indexes = append(p.indexes, index)
	engaged := slices.Collect(maps.Values(p.clusters))
	p.mu.Unlock()
	var failed []error
	for _, known := range engaged {
		failed = append(failed, index(ctx, known))
	}
	return errors.Join(failed...)
}

// Start implements multicluster.ProviderRunnable. It returns when ctx ends. It logs why a cluster is left out, when that
// changes.
func (p *Provider) Start(ctx context.Context, aware multicluster.Aware) error {
	fleet := p.broker.Clusters(p.namespace)
	defer fleet.Close()
	defer background(ctx, func(ctx context.Context) { p.await(ctx, fleet) })()
	followed, left := map[credbroker.ClusterName]func(){}, map[credbroker.ClusterName]string{}
	for event := range fleet.Events(ctx) {
		name := event.Cluster.ClusterName
		stop, isFollowed := followed[name]
		switch {
		case event.Type == credbroker.ClusterRemoved:
			if isFollowed {
				stop()
			}
			delete(followed, name)
			delete(left, name)
		case isFollowed:
		case event.Cluster.Cluster != nil:
			delete(left, name)
			followed[name] = background(ctx, func(ctx context.Context) { p.follow(ctx, name, aware) })
		default:
			if why := whyUnusable(event.Cluster); left[name] != why.Error() {
				left[name] = why.Error()
				logLeftOut(ctx, name, why, false)
			}
		}
	}
	for _, stop := range followed {
		stop()
	}
	return nil
}

func logger(ctx context.Context) logr.Logger { return log.FromContext(ctx).WithName("credbroker") }

func logLeftOut(ctx context.Context, name credbroker.ClusterName, why error, engaged bool) {
	logger(ctx).Info("the cluster is left out", "cluster", name.String(), "reason", credbroker.ReasonOf(why), "error", why.Error(), "isEngaged", engaged)
}

func whyUnusable(state *credbroker.ClusterState) error {
	if state.Failure != nil {
		return state.Failure
	}
	return fmt.Errorf("the broker has no endpoint for it (%s)", state.Readiness)
}

// await logs why there are no clusters, until the broker has sent them.
func (p *Provider) await(ctx context.Context, fleet *credbroker.Clusters) {
	for last := ""; ; {
		err := fleet.Ready(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		if err.Error() != last {
			last = err.Error()
			logger(ctx).Error(err, "the clusters are not known")
		}
		select {
		case <-ctx.Done():
		case <-time.After(p.retry):
		}
	}
}

// follow engages one cluster, and again for each of its endpoints, until ctx ends.
func (p *Provider) follow(ctx context.Context, name credbroker.ClusterName, aware multicluster.Aware) {
	engaged, stop := multicluster.ClusterName(name.String()), func() {}
	var last *rest.Config
	for change := range p.broker.RESTConfigs(ctx, name.Ref()) {
		if change.Err != nil {
			logLeftOut(ctx, name, change.Err, last != nil)
			continue
		}
		logger(ctx).Info("the cluster can be used", "cluster", engaged)
		// After a failure it is the same one again.
		if reflect.DeepEqual(last, change.Config) {
			continue
		}
		last = change.Config
		stop()
		stop = background(ctx, func(ctx context.Context) {
			wait.UntilWithContext(ctx, func(ctx context.Context) {
				if err := p.engage(ctx, engaged, change.Config, aware); err != nil && ctx.Err() == nil {
					logger(ctx).Error(err, "the cluster failed", "cluster", engaged, "retryAfter", p.retry)
				}
			}, p.retry)
		})
	}
	stop()
}

// engage runs one cluster until ctx ends or the cluster fails.
func (p *Provider) engage(ctx context.Context, name multicluster.ClusterName, config *rest.Config, aware multicluster.Aware) error {
	made, err := cluster.New(config, p.options...)
	if err != nil {
		return err
	}
	limited, stop := context.WithTimeoutCause(ctx, 30*time.Second, errors.New("it has not answered in 30 s"))
	defer stop()
	defer p.remove(name)
	if err := p.add(limited, name, made); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- made.Start(ctx) }()
	if !made.GetCache().WaitForCacheSync(limited) {
		err = errors.New("its caches have not synced in 30 s")
	} else {
		err = aware.Engage(ctx, name, made)
	}
	if err != nil {
		cancel()
	}
	return errors.Join(err, <-ended)
}

// add makes the indexes before the cluster starts: afterwards, each one would wait for a list. An index asks the cluster for
// its kinds, so the lock is not held meanwhile: a cluster that does not answer must not block the others.
func (p *Provider) add(ctx context.Context, name multicluster.ClusterName, made cluster.Cluster) error {
	for done := 0; ; {
		p.mu.Lock()
		missing := p.indexes[done:]
		if len(missing) == 0 {
			p.clusters[name] = made
			p.mu.Unlock()
			return nil
		}
		p.mu.Unlock()
		for _, index := range missing {
			if err := until(ctx, func() error { return index(ctx, made) }); err != nil {
				return err
			}
		}
		done += len(missing)
	}
}

// until returns when work does or ctx ends. Discovery has no context, and a cluster can take any time to answer.
func until(ctx context.Context, work func() error) error {
	done := make(chan error, 1)
	go func() { done <- work() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *Provider) remove(name multicluster.ClusterName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.clusters, name)
}

// background starts work, and returns a function that ends it and waits for its end. A cluster that takes the place of
// another one begins after it, so that the end of the first never removes the second.
func background(ctx context.Context, work func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		work(ctx)
	}()
	return func() {
		cancel()
		<-ended
	}
}
