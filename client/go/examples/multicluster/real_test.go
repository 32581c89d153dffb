package multicluster

import (
	"context"
	"net/http"
	"testing"
	"time"

	credbroker "github.com/credbroker/credbroker/client/go"
	pb "github.com/credbroker/credbroker/client/go/credbrokerv1"
	"github.com/credbroker/credbroker/client/go/internal/fake"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcbuilder "sigs.k8s.io/multicluster-runtime/pkg/builder"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
)

// A reconciler of ConfigMaps in a whole multicluster-runtime, through a rotation whose old token is revoked.
func TestReconcilersGoOnWithARealAPIServer(t *testing.T) {
	api, broker := fake.NewRealAPIServer(t), fake.NewBroker(t)
	here := &pb.Cluster{Server: api.URL, CertificateAuthorityData: api.CA}
	set := func(token string) {
		api.AcceptToken(token)
		broker.Set("clusterprofile/fleet/paris", &pb.Credential{Generation: token, Token: &token}, here)
	}
	t.Cleanup(func() { api.RejectToken("multicluster-2") })
	set("multicluster-1")
	broker.SetCluster(&pb.ClusterState{ClusterProfile: &pb.ClusterProfileRef{Namespace: "fleet", Name: "paris"}, Cluster: here})
	connected, err := credbroker.New(credbroker.WithSocket(broker.Socket))
	if err != nil {
		t.Fatal(err)
	}
	defer connected.Close()
	// The manager's own cluster, which is not one of the fleet.
	hub := &rest.Config{Host: fake.NewRealAPIServer(t).URL, BearerToken: "multicluster-1", TLSClientConfig: rest.TLSClientConfig{CAData: api.CA}}
	options := mcmanager.Options{Metrics: server.Options{BindAddress: "0"}}
	manager, err := mcmanager.New(hub, New(connected, "fleet"), options)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(chan string, 1000)
	err = mcbuilder.ControllerManagedBy(manager).Named("configmaps").For(&corev1.ConfigMap{}).Complete(mcreconcile.Func(
		func(ctx context.Context, request mcreconcile.Request) (reconcile.Result, error) {
			from, err := manager.GetCluster(ctx, request.ClusterName)
			if err != nil {
				return reconcile.Result{}, err
			}
			var found corev1.ConfigMap
			if err := from.GetClient().Get(ctx, request.NamespacedName, &found); err != nil {
				return reconcile.Result{}, client.IgnoreNotFound(err)
			}
			seen <- request.ClusterName.String() + "/" + found.Name
			return reconcile.Result{}, nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	await := func(name string) {
		t.Helper()
		for late := time.After(patience); ; {
			select {
			case found := <-seen:
				if found == "fleet/paris/"+name {
					return
				}
			case <-late:
				t.Fatalf("%s was not reconciled", name)
			}
		}
	}
	api.Create("before")
	await("before")
	set("multicluster-2")
	for credential := range connected.Source(credbroker.ClusterProfile("fleet", "paris")).Changes(ctx) {
		if credential.Generation() == "multicluster-2" {
			break
		}
	}
	api.RejectToken("multicluster-1")
	old, err := rest.HTTPClientFor(hub)
	if err != nil {
		t.Fatal(err)
	}
	// The API server remembers for ten seconds that it has accepted a token.
	for status, late := 0, time.Now().Add(patience); status != http.StatusUnauthorized; {
		answer, err := old.Get(hub.Host + "/version")
		if err != nil || time.Now().After(late) {
			t.Fatal(status, err)
		}
		answer.Body.Close()
		status = answer.StatusCode
		time.Sleep(100 * time.Millisecond)
	}
	api.Create("after")
	await("after")
	if dials := api.Dials(); dials != "1" {
		t.Errorf("%s connections", dials)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
