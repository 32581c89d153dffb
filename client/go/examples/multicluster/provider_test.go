package multicluster

import (
	"context"
	"testing"
	"time"

	credbroker "github.com/credbroker/credbroker/client/go"
	pb "github.com/credbroker/credbroker/client/go/credbrokerv1"
	"github.com/credbroker/credbroker/client/go/internal/fake"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/clusters"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// An engagement is a call of Engage.
type engagement struct {
	ctx     context.Context
	name    multicluster.ClusterName
	cluster cluster.Cluster
}

type engagements chan engagement

func (e engagements) Engage(ctx context.Context, name multicluster.ClusterName, of cluster.Cluster) error {
	e <- engagement{ctx, name, of}
	return nil
}

func TestAClusterIsEngagedOnceForEachEndpoint(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	broker, server := fake.NewBroker(t), fake.NewAPIServer(t, false)
	const paris = "clusterprofile/fleet/paris"
	here := &pb.Cluster{Server: server.URL, CertificateAuthorityData: server.CA}
	token := func(generation string) *pb.Credential {
		return &pb.Credential{Generation: generation, Token: &generation}
	}
	broker.Set(paris, token("1"), here)
	profile := &pb.ClusterProfileRef{Namespace: "fleet", Name: "paris"}
	broker.SetCluster(&pb.ClusterState{ClusterProfile: profile, Cluster: here})
	connected, err := credbroker.New(credbroker.WithSocket(broker.Socket))
	if err != nil {
		t.Fatal(err)
	}
	defer connected.Close()
	provider, engaged := New(connected, "fleet"), make(engagements, 10)
	ended := make(chan error)
	go func() { ended <- provider.Start(ctx, engaged) }()

	first := <-engaged
	if first.name != "fleet/paris" || first.cluster.GetConfig().Host != server.URL {
		t.Error(first.name, first.cluster.GetConfig().Host)
	}
	if found, err := provider.Get(ctx, "fleet/paris"); err != nil || found != first.cluster {
		t.Error(found, err)
	}
	// A rotation, and a change that is not one of the endpoint.
	broker.Set(paris, token("2"), here)
	broker.SetCluster(&pb.ClusterState{ClusterProfile: profile, Cluster: here, DisplayName: "Paris"})
	for credential := range connected.Source(credbroker.ClusterProfile("fleet", "paris")).Changes(ctx) {
		if credential.Generation() == "2" {
			break
		}
	}
	again, err := connected.RESTConfig(ctx, credbroker.ClusterProfile("fleet", "paris"))
	if err != nil {
		t.Fatal(err)
	}
	other, err := cluster.New(again)
	if err != nil {
		t.Fatal(err)
	}
	if !clusters.EqualClusters(first.cluster, other) {
		t.Error("multicluster-runtime would engage the cluster again")
	}

	there := fake.NewAPIServer(t, false)
	broker.Set(paris, token("3"), &pb.Cluster{Server: there.URL, CertificateAuthorityData: there.CA})
	moved := <-engaged
	if moved.cluster.GetConfig().Host != there.URL {
		t.Error("the cluster has not moved")
	}
	<-first.ctx.Done()

	broker.RemoveCluster("fleet", "paris")
	<-moved.ctx.Done()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if len(engaged) > 0 {
		t.Error("a rotation engaged the cluster")
	}
}
