package multicluster

import (
	"context"
	"strings"
	"testing"

	credbroker "github.com/credbroker/credbroker/client/go"
	pb "github.com/credbroker/credbroker/client/go/credbrokerv1"
	"github.com/credbroker/credbroker/client/go/internal/fake"
	"github.com/go-logr/logr/funcr"
	"google.golang.org/grpc/codes"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

func TestAClusterThatIsLeftOutIsLoggedWithTheReasonWhenThatChanges(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	broker, server := fake.NewBroker(t), fake.NewAPIServer(t, false)
	profile, here := &pb.ClusterProfileRef{Namespace: "fleet", Name: "paris"}, &pb.Cluster{Server: server.URL, CertificateAuthorityData: server.CA}
	const paris = "clusterprofile/fleet/paris"
	fail := func(reason string) { broker.Fail(paris, fake.Failure(codes.Unavailable, reason, "because of "+reason)) }
	unusable := func(message string) {
		failure := &pb.Failure{Reason: pb.ErrorReason_NO_MATCHING_PROVIDER, Message: message}
		broker.SetCluster(&pb.ClusterState{ClusterProfile: profile, Readiness: pb.ClusterState_READINESS_UNUSABLE, Failure: failure})
	}
	connected, err := credbroker.New(credbroker.WithSocket(broker.Socket))
	if err != nil {
		t.Fatal(err)
	}
	defer connected.Close()
	lines := make(chan string, 100)
	ctx = log.IntoContext(ctx, funcr.New(func(_, line string) { lines <- line }, funcr.Options{}))
	// logged waits for the next line of the log.
	logged := func(parts ...string) {
		t.Helper()
		select {
		case line := <-lines:
			for _, part := range parts {
				if !strings.Contains(line, part) {
					t.Errorf("%q is not in: %s", part, line)
				}
			}
		case <-ctx.Done():
			t.Fatalf("%v was not logged", parts)
		}
	}
	broker.Stop()
	fail("PLUGIN_EXIT")
	provider, engaged := New(connected, "fleet", withMapper), make(engagements, 10)
	ended := make(chan error)
	go func() { ended <- provider.Start(ctx, engaged) }()
	logged("the clusters are not known", "no broker answers")
	unusable("no provider serves it")
	broker.Start()
	logged("left out", "fleet/paris", `"reason"="NO_MATCHING_PROVIDER"`, "no provider serves it")
	// A change of the state that is not one of the reason.
	display := "Paris"
	broker.SetCluster(&pb.ClusterState{
		ClusterProfile: profile, Readiness: pb.ClusterState_READINESS_UNUSABLE, DisplayName: &display,
		Failure: &pb.Failure{Reason: pb.ErrorReason_NO_MATCHING_PROVIDER, Message: "no provider serves it"},
	})
	unusable("two providers serve it")
	logged("left out", "fleet/paris", "two providers serve it")
	broker.SetCluster(&pb.ClusterState{ClusterProfile: profile, Cluster: here})
	logged("left out", "fleet/paris", `"reason"="PLUGIN_EXIT"`, "because of PLUGIN_EXIT", `"isEngaged"=false`)
	fail("PLUGIN_TIMEOUT")
	logged("left out", "fleet/paris", "because of PLUGIN_TIMEOUT")
	text := "1"
	server.AcceptToken(text)
	broker.Set(paris, &pb.Credential{Generation: "1", Token: &text}, here)
	logged("can be used", "fleet/paris")
	engaged.next(t)
	fail("PROVIDER_CHANGED")
	logged("left out", "fleet/paris", "because of PROVIDER_CHANGED", `"isEngaged"=true`)
	broker.Set(paris, &pb.Credential{Generation: "2", Token: &text}, here)
	logged("can be used", "fleet/paris")
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if len(lines) > 0 || len(engaged) > 0 {
		t.Errorf("%d more lines: %s", len(lines), <-lines)
	}
}
