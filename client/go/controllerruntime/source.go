// Package controllerruntime connects the clusters of a credbroker with controllers of controller-runtime.
//
// It is a separate module, so that programs that use only credbroker.RESTConfig do not depend on controller-runtime.
package controllerruntime

import (
	"context"
	"errors"
	"io/fs"
	"time"

	credbroker "github.com/credbroker/credbroker/client/go"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

const betweenAttempts = time.Second

// Source returns a source of one request for each cluster that exists, and then for each that is added, changed or removed.
// The request has the namespace and the name of the ClusterProfile, of which NameOf makes the name for Clusters.Get. A cluster
// that was removed is not known there.
//
// The controller starts its workers when the broker has sent all clusters that it knows. For a broker that does not answer,
// it waits as long as its CacheSyncTimeout.
func Source(clusters *credbroker.Clusters) source.SyncingSource {
	return TypedSource(clusters, func(name credbroker.ClusterName) reconcile.Request {
		return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: name.Namespace, Name: name.Name}}
	})
}

// NameOf returns the cluster that a request is for.
func NameOf(request reconcile.Request) credbroker.ClusterName {
	return credbroker.ClusterName{Namespace: request.Namespace, Name: request.Name}
}

// TypedSource is Source for controllers with another type of requests.
func TypedSource[Request comparable](
	clusters *credbroker.Clusters, request func(credbroker.ClusterName) Request,
) source.TypedSyncingSource[Request] {
	return &clustersSource[Request]{clusters: clusters, request: request}
}

type clustersSource[Request comparable] struct {
	clusters *credbroker.Clusters
	request  func(credbroker.ClusterName) Request
}

// Start implements source.TypedSource. It does not block.
func (s *clustersSource[Request]) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[Request]) error {
	events := s.clusters.Events(ctx)
	go func() {
		for event := range events {
			queue.Add(s.request(event.Cluster.ClusterName))
		}
	}()
	return nil
}

// WaitForSync implements source.TypedSyncingSource. It waits for a broker that does not answer yet until ctx ends, as the
// sources of informers wait for an API server: an error would end the manager.
func (s *clustersSource[Request]) WaitForSync(ctx context.Context) error {
	return waitForSync(ctx, s.clusters.Ready)
}

func waitForSync(ctx context.Context, ready func(context.Context) error) error {
	var last error
	for {
		// It waits five seconds for a broker that may be starting, and longer for one that does not answer.
		err := ready(ctx)
		if err != nil && ctx.Err() != nil {
			return errors.Join(err, last)
		}
		var unreachable *credbroker.UnreachableError
		var late *credbroker.TimeoutError
		if !errors.As(err, &unreachable) && !errors.As(err, &late) || errors.Is(err, fs.ErrPermission) {
			return err
		}
		last = err
		// The failure stays until the next watch succeeds or ends, and Ready returns it immediately until then.
		select {
		case <-time.After(betweenAttempts):
		case <-ctx.Done():
		}
	}
}

// String names the source in the logs of controller-runtime.
func (s *clustersSource[Request]) String() string { return "clusters of credbroker" }
