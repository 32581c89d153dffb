// Package kueue gives MultiKueue the configs of ClusterProfiles from a credbroker. Copy it into Kueue.
package kueue

import (
	"context"
	"time"

	credbroker "github.com/credbroker/credbroker/client/go"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
)

// An AccessProvider takes the place of access.Config of cluster-inventory-api.
type AccessProvider struct{ Broker *credbroker.Broker }

// BuildConfigFromCP returns a config that is equal to the one before, unless the cluster has moved.
func (a AccessProvider) BuildConfigFromCP(profile *v1alpha1.ClusterProfile) (*rest.Config, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return a.Broker.RESTConfig(ctx, credbroker.ClusterProfile(profile.Namespace, profile.Name))
}
