package controllerruntime

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	credbroker "github.com/credbroker/credbroker/client/go"
	pb "github.com/credbroker/credbroker/client/go/credbrokerv1"
	"github.com/credbroker/credbroker/client/go/internal/fake"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// For what has to happen.
const patience = time.Minute

func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func connect(t *testing.T, to *fake.Broker) *credbroker.Broker {
	t.Helper()
	broker, err := credbroker.New(credbroker.WithSocket(to.Socket))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	return broker
}

func token(generation string) *pb.Credential {
	text := "token-" + generation
	return &pb.Credential{Generation: generation, Token: &text}
}

func TestASourceHasARequestForEachChange(t *testing.T) {
	broker := fake.NewBroker(t)
	state := func(readiness pb.ClusterState_Readiness) *pb.ClusterState {
		return &pb.ClusterState{ClusterProfile: &pb.ClusterProfileRef{Namespace: "fleet", Name: "paris"}, Readiness: readiness}
	}
	broker.SetCluster(state(pb.ClusterState_READINESS_IDLE))
	clusters := connect(t, broker).Clusters("fleet")
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(queue.ShutDown)
	made := Source(clusters)
	if err := made.Start(patient(t), queue); err != nil {
		t.Fatal(err)
	}
	if err := made.WaitForSync(patient(t)); err != nil {
		t.Fatal(err)
	}
	next := func() *credbroker.ClusterState {
		t.Helper()
		request, _ := queue.Get()
		queue.Done(request)
		if request.Namespace != "fleet" || request.Name != "paris" {
			t.Fatal(request)
		}
		found, known := clusters.Get(NameOf(request))
		if known != (found != nil) {
			t.Error(found, known)
		}
		return found
	}
	if found := next(); found.Readiness != credbroker.Idle {
		t.Error(found)
	}
	broker.SetCluster(state(pb.ClusterState_READINESS_READY))
	if found := next(); found.Readiness != credbroker.Ready {
		t.Error(found)
	}
	broker.RemoveCluster("fleet", "paris")
	if found := next(); found != nil {
		t.Error(found)
	}
}

func TestAControllerWaitsForABrokerLongerThanOneAttempt(t *testing.T) {
	broker := fake.NewBroker(t)
	broker.Stop()
	clusters := connect(t, broker).Clusters("")
	made, synced := Source(clusters), make(chan error)
	go func() { synced <- made.WaitForSync(patient(t)) }()
	if err := clusters.Ready(patient(t)); err == nil {
		t.Fatal("the broker answers")
	}
	broker.Start()
	if err := <-synced; err != nil {
		t.Error(err)
	}

	broker.Stop()
	ended, end := context.WithCancelCause(t.Context())
	end(errors.New("the controller ended"))
	if err := Source(connect(t, broker).Clusters("")).WaitForSync(ended); err == nil || !strings.Contains(err.Error(), "the controller ended") {
		t.Error(err)
	}
	late, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	var unreachable *credbroker.UnreachableError
	err := Source(connect(t, broker).Clusters("")).WaitForSync(late)
	if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &unreachable) {
		t.Error(err)
	}
}

// A failure stays until the next watch ends, so each attempt meanwhile returns it immediately.
func TestTheWaitForABrokerThatDoesNotAnswerPausesBetweenItsAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Second+time.Millisecond)
		defer stop()
		attempts := 0
		err := waitForSync(ctx, func(ctx context.Context) error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if attempts++; attempts > 1000 {
				stop()
			}
			return &credbroker.TimeoutError{Limit: time.Minute}
		})
		if !errors.Is(err, context.DeadlineExceeded) || attempts != 11 {
			t.Errorf("%d attempts in ten seconds: %v", attempts, err)
		}
	})
}

func TestClientsAndCachesOfControllerRuntimeFollowTokens(t *testing.T) {
	broker, server := fake.NewBroker(t), fake.NewAPIServer(t, false)
	const paris = "clusterprofile/fleet/paris"
	cluster := &pb.Cluster{Server: server.URL, CertificateAuthorityData: server.CA}
	server.AcceptToken("token-1")
	broker.Set(paris, token("1"), cluster)
	ref := credbroker.ClusterProfile("fleet", "paris")
	connected := connect(t, broker)
	config, err := connected.RESTConfig(patient(t), ref)
	if err != nil {
		t.Fatal(err)
	}
	kind := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{kind.GroupVersion()})
	mapper.Add(kind, meta.RESTScopeNamespace)
	direct, err := client.New(config, client.Options{Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	cached, err := cache.New(config, cache.Options{Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- cached.Start(ctx) }()
	defer func() { stop(); <-ended }()

	list := func(from client.Reader) int {
		t.Helper()
		maps := &unstructured.UnstructuredList{}
		maps.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMapList"})
		if err := from.List(patient(t), maps, client.InNamespace("default")); err != nil {
			t.Fatal(err)
		}
		return len(maps.Items)
	}
	server.Create("first")
	if list(direct) != 1 || list(cached) != 1 {
		t.Error("an object is missing")
	}
	server.AcceptToken("token-2")
	broker.Set(paris, token("2"), cluster)
	for credential := range connected.Source(ref).Changes(patient(t)) {
		if credential.Generation() == "2" {
			break
		}
	}
	server.RejectToken("token-1")
	server.Create("second")
	if list(direct) != 2 {
		t.Error("the client has the old token")
	}
	if counts := server.Counts(); counts.Unauthorized > 0 || counts.Dials != 1 {
		t.Errorf("%+v", counts)
	}
}
