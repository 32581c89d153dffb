package multicluster

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	credbroker "github.com/credbroker/credbroker/client/go"
	pb "github.com/credbroker/credbroker/client/go/credbrokerv1"
	"github.com/credbroker/credbroker/client/go/internal/fake"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/clusters"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// For what has to happen.
const patience = time.Minute

// An engagement is a call of Engage.
type engagement struct {
	ctx     context.Context
	name    multicluster.ClusterName
	cluster cluster.Cluster
}

type engagements chan engagement

func (e engagements) next(t *testing.T) engagement {
	t.Helper()
	select {
	case next := <-e:
		return next
	case <-time.After(patience):
	}
	t.Fatal("no cluster was engaged")
	panic("unreachable")
}

func (e engagements) Engage(ctx context.Context, name multicluster.ClusterName, of cluster.Cluster) error {
	e <- engagement{ctx, name, of}
	return nil
}

// A refusal is an aware that fails once.
type refusal struct {
	engagements
	refused bool
}

func (r *refusal) Engage(ctx context.Context, name multicluster.ClusterName, of cluster.Cluster) error {
	if !r.refused {
		r.refused = true
		return errors.New("not yet")
	}
	return r.engagements.Engage(ctx, name, of)
}

var kind = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}

// The servers of the tests have no discovery.
func withMapper(options *cluster.Options) {
	options.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
		mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{kind.GroupVersion()})
		mapper.Add(kind, meta.RESTScopeNamespace)
		return mapper, nil
	}
}

// assertStays fails if the cluster is no longer engaged.
func assertStays(t *testing.T, provider *Provider, here engagement) {
	t.Helper()
	if found, err := provider.Get(here.ctx, here.name); err != nil || found != here.cluster || here.ctx.Err() != nil {
		t.Errorf("the cluster is gone: %v, %v", err, here.ctx.Err())
	}
}

func TestAClusterIsEngagedOnceForEachEndpoint(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	broker, server := fake.NewBroker(t), fake.NewAPIServer(t, false)
	const paris = "clusterprofile/fleet/paris"
	here := &pb.Cluster{Server: server.URL, CertificateAuthorityData: server.CA}
	token := func(generation string) *pb.Credential {
		return &pb.Credential{Generation: generation, Token: &generation}
	}
	server.AcceptToken("1")
	server.AcceptToken("2")
	broker.Set(paris, token("1"), here)
	profile := &pb.ClusterProfileRef{Namespace: "fleet", Name: "paris"}
	broker.SetCluster(&pb.ClusterState{ClusterProfile: profile, Cluster: here})
	connected, err := credbroker.New(credbroker.WithSocket(broker.Socket))
	if err != nil {
		t.Fatal(err)
	}
	defer connected.Close()
	provider, engaged := New(connected, "fleet", withMapper), make(engagements, 10)
	provider.retry = time.Millisecond
	indexed := &unstructured.Unstructured{}
	indexed.SetGroupVersionKind(kind)
	if err := provider.IndexField(ctx, indexed, "x", func(client.Object) []string { return nil }); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- provider.Start(ctx, &refusal{engagements: engaged}) }()

	first := engaged.next(t)
	if first.name != "fleet/paris" || first.cluster.GetConfig().Host != server.URL {
		t.Error(first.name, first.cluster.GetConfig().Host)
	}
	if found, err := provider.Get(ctx, "fleet/paris"); err != nil || found != first.cluster {
		t.Error(found, err)
	}
	// A rotation, and a change that is not one of the endpoint.
	broker.Set(paris, token("2"), here)
	display := "Paris"
	broker.SetCluster(&pb.ClusterState{ClusterProfile: profile, Cluster: here, DisplayName: &display})
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
	there.AcceptToken("3")
	broker.Set(paris, token("3"), &pb.Cluster{Server: there.URL, CertificateAuthorityData: there.CA})
	moved := engaged.next(t)
	if moved.cluster.GetConfig().Host != there.URL {
		t.Error("the cluster has not moved")
	}
	<-first.ctx.Done()
	assertStays(t, provider, moved)

	broker.RemoveCluster("fleet", "paris")
	<-moved.ctx.Done()
	broker.SetCluster(&pb.ClusterState{ClusterProfile: profile, Cluster: here})
	back := engaged.next(t)
	if _, err := connected.RESTConfig(ctx, credbroker.ClusterProfile("fleet", "paris")); err != nil {
		t.Error(err)
	}
	assertStays(t, provider, back)
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if len(engaged) > 0 {
		t.Error("a rotation engaged the cluster")
	}
}

// Indexes ask the cluster for its kinds.
func TestAClusterThatDoesNotAnswerDoesNotBlockTheOthers(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	provider, indexed := New(nil, ""), &unstructured.Unstructured{}
	indexed.SetGroupVersionKind(kind)
	if err := provider.IndexField(ctx, indexed, "x", func(client.Object) []string { return nil }); err != nil {
		t.Fatal(err)
	}
	known, err := cluster.New(&rest.Config{Host: "https://127.0.0.1:1"}, withMapper)
	if err != nil {
		t.Fatal(err)
	}
	if err := provider.add(ctx, "fleet/paris", known); err != nil {
		t.Fatal(err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	unreachable, err := cluster.New(&rest.Config{Host: "https://" + silent.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	left, leave := context.WithCancel(ctx)
	defer leave()
	added := make(chan error)
	go func() { added <- provider.add(left, "fleet/tokyo", unreachable) }()
	asked, err := silent.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer asked.Close()
	found := make(chan cluster.Cluster)
	go func() {
		got, _ := provider.Get(ctx, "fleet/paris")
		found <- got
	}()
	select {
	case got := <-found:
		if got != known {
			t.Error("it is another cluster")
		}
	case err := <-added:
		t.Fatalf("Get has waited for a cluster that does not answer (%v)", err)
	}
	if _, err := provider.Get(ctx, "fleet/tokyo"); !errors.Is(err, multicluster.ErrClusterNotFound) {
		t.Error(err)
	}
	// Nor does it block its own removal.
	leave()
	if err := <-added; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestAnIndexThatComesWhileOthersAreMadeIsMadeToo(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	provider, made := New(nil, ""), []string{}
	provider.indexes = append(provider.indexes, func(ctx context.Context, _ cluster.Cluster) error {
		made = append(made, "first")
		provider.mu.Lock()
		defer provider.mu.Unlock()
		provider.indexes = append(provider.indexes, func(context.Context, cluster.Cluster) error {
			made = append(made, "second")
			return nil
		})
		return nil
	})
	if err := provider.add(ctx, "fleet/paris", nil); err != nil {
		t.Fatal(err)
	}
	if _, known := provider.clusters["fleet/paris"]; !known || !slices.Equal(made, []string{"first", "second"}) {
		t.Error(known, made)
	}
}
