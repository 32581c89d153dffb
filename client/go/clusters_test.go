package credbroker

import (
	"testing"

	pb "github.com/credbroker/credbroker/client/go/credbrokerv1"
	"github.com/credbroker/credbroker/client/go/internal/fake"
)

func clusterState(name string, readiness pb.ClusterState_Readiness) *pb.ClusterState {
	return &pb.ClusterState{
		ClusterProfile: &pb.ClusterProfileRef{Namespace: "fleet", Name: name}, Readiness: readiness,
		Properties: []*pb.ClusterState_Property{{Name: "region", Value: "eu"}},
	}
}

func TestClustersAreListedInPagesAndFollowed(t *testing.T) {
	broker := fake.NewBroker(t)
	for _, name := range []string{"paris", "tokyo", "lima"} {
		broker.SetCluster(clusterState(name, pb.ClusterState_READINESS_READY))
	}
	client := connect(t, broker)
	listed, hub, err := client.ListClusters(patient(t), "fleet")
	if err != nil || len(listed) != 3 || listed[0].Name != "lima" || !hub.Synced || listed[0].Readiness != Ready {
		t.Fatal(listed, hub, err)
	}
	if listed[0].Properties["region"] != "eu" || listed[0].Ref().String() != "clusterprofile/fleet/lima" {
		t.Error(listed[0])
	}
	if none, _, err := client.ListClusters(patient(t), "other"); err != nil || len(none) != 0 {
		t.Error(none, err)
	}

	clusters := client.Clusters("fleet")
	if err := clusters.Ready(patient(t)); err != nil {
		t.Fatal(err)
	}
	if all := clusters.List(); len(all) != 3 || all[2].Name != "tokyo" {
		t.Error(all)
	}
	events := clusters.Events(patient(t))
	added := map[string]bool{}
	for range 3 {
		event := <-events
		added[event.Cluster.Name] = event.Type == ClusterAdded
	}
	if !added["paris"] || !added["tokyo"] || !added["lima"] {
		t.Error(added)
	}
	broker.SetCluster(clusterState("paris", pb.ClusterState_READINESS_FAILED))
	if event := <-events; event.Type != ClusterChanged || event.Cluster.Readiness != Failed {
		t.Error(event)
	}
	broker.RemoveCluster("fleet", "tokyo")
	if event := <-events; event.Type != ClusterRemoved || event.Cluster.Name != "tokyo" {
		t.Error(event)
	}
	if _, known := clusters.Get(ClusterName{"fleet", "tokyo"}); known {
		t.Error("a cluster that was removed is known")
	}
	if paris, known := clusters.Get(ClusterName{"fleet", "paris"}); !known || paris.Readiness != Failed {
		t.Error("the list does not follow")
	}
}

func TestAfterARestartClustersStayUntilTheHubWasRead(t *testing.T) {
	broker := fake.NewBroker(t)
	broker.SetCluster(clusterState("paris", pb.ClusterState_READINESS_READY))
	broker.SetCluster(clusterState("tokyo", pb.ClusterState_READINESS_READY))
	client := connect(t, broker)
	clusters := client.Clusters("")
	events := clusters.Events(patient(t))
	<-events
	<-events
	broker.Stop()
	broker.RemoveCluster("fleet", "tokyo")
	broker.SetHub(false)
	broker.Start()
	broker.SetCluster(clusterState("lima", pb.ClusterState_READINESS_READY))
	if event := <-events; event.Type != ClusterAdded || event.Cluster.Name != "lima" {
		t.Error(event)
	}
	if len(clusters.List()) != 3 {
		t.Error("a cluster is gone that the broker may not have read yet")
	}
	broker.SetHub(true)
	broker.SetCluster(clusterState("oslo", pb.ClusterState_READINESS_READY))
	seen := map[string]ClusterEventType{}
	for range 2 {
		event := <-events
		seen[event.Cluster.Name] = event.Type
	}
	if seen["tokyo"] != ClusterRemoved || seen["oslo"] != ClusterAdded {
		t.Error(seen)
	}
}
