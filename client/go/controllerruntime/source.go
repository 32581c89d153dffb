// Package controllerruntime connects the clusters of a credbroker with controllers of controller-runtime.
//
// It is a separate module, so that programs that use only credbroker.RESTConfig do not depend on controller-runtime.
package controllerruntime

import (
	"context"

	credbroker "github.com/credbroker/credbroker/client/go"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Source returns a source of one request for each cluster that exists, and then for each that is added, changed or removed.
// The request has the namespace and the name of the ClusterProfile. A reconciler reads the state with Clusters.Get, which
// returns nil for a cluster that was removed.
//
// The controller starts its workers when the broker has sent all clusters that it knows.
func Source(clusters *credbroker.Clusters) source.SyncingSource {
	return TypedSource(clusters, func(name credbroker.ClusterName) reconcile.Request {
		return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: name.Namespace, Name: name.Name}}
	})
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

// WaitForSync implements source.TypedSyncingSource.
func (s *clustersSource[Request]) WaitForSync(ctx context.Context) error {
	return s.clusters.Ready(ctx)
}

// String names the source in the logs of controller-runtime.
func (s *clustersSource[Request]) String() string { return "clusters of credbroker" }
