package credbroker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	pb "github.com/credbroker/credbroker/client/go/credbrokerv1"
	"github.com/credbroker/credbroker/client/go/internal/fake"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"k8s.io/client-go/rest"
)

func TestAFailureKeepsItsReasonAndItsRetryTime(t *testing.T) {
	broker := fake.NewBroker(t)
	client := connect(t, broker)
	for number, name := range pb.ErrorReason_name {
		if number == 0 {
			continue
		}
		retry := &errdetails.RetryInfo{RetryDelay: durationpb.New(7 * time.Second)}
		broker.Fail("provider/corp", fake.Failure(codes.Unavailable, name, "corp: the plugin failed", retry))
		_, err := client.GetCredential(patient(t), Provider("corp"))
		var failed *Error
		if !errors.As(err, &failed) || ReasonOf(fmt.Errorf("x: %w", err)) != Reason(name) {
			t.Fatalf("%s: %v", name, err)
		}
		if failed.Message != "corp: the plugin failed" || failed.RetryAfter != 7*time.Second || failed.Provider != "corp" {
			t.Errorf("%+v", failed)
		}
		if failed.ID != "abababababab" || failed.ClusterProfile != "fleet/paris" || failed.Context != "dev" {
			t.Errorf("%+v", failed)
		}
	}
	broker.Fail("provider/corp", fake.Failure(codes.NotFound, "A_LATER_REASON", "x"))
	if _, err := client.GetCredential(patient(t), Provider("corp")); ReasonOf(err) != "A_LATER_REASON" {
		t.Error(err)
	}
}

func TestEveryReasonOfTheContractHasAConstant(t *testing.T) {
	declared := map[Reason]bool{}
	for _, reason := range allReasons {
		declared[reason] = true
	}
	for number, name := range pb.ErrorReason_name {
		if number != 0 && !declared[Reason(name)] {
			t.Errorf("%s has no constant", name)
		}
	}
}

func TestUnavailableThatDoesNotComeFromABrokerIsUnreachable(t *testing.T) {
	broker := fake.NewBroker(t)
	client := connect(t, broker)
	broker.Fail("provider/corp", status.Error(codes.Unavailable, "no"))
	var unreachable *UnreachableError
	if _, err := client.GetCredential(patient(t), Provider("corp")); !errors.As(err, &unreachable) {
		t.Error(err)
	}
	broker.Fail("provider/corp", status.Error(codes.PermissionDenied, "no"))
	var failed *Error
	if _, err := client.GetCredential(patient(t), Provider("corp")); !errors.As(err, &failed) || failed.Code != codes.PermissionDenied {
		t.Error(err)
	}
}

func TestARequestWithoutACredentialFailsWithTheReason(t *testing.T) {
	f := newFleet(t, false)
	client := f.client(t)
	source := f.broker.Source(parisRef)
	source.followed.current.Store(&Credential{generation: "0", expiry: &expiry{}, cluster: source.Current().cluster})
	f.fake.Fail(paris, fake.Failure(codes.FailedPrecondition, "INTERACTION_REQUIRED", "the plugin needs a user"))
	_, err := client.Do(request(t, http.MethodGet, f.server.URL+"/version", nil))
	var none *NoCredentialError
	if !errors.As(err, &none) || ReasonOf(err) != ReasonInteractionRequired {
		t.Error(err)
	}
	if len(f.server.Identities()) > 0 {
		t.Error("a request was sent")
	}
}

func TestATimeoutIsNamed(t *testing.T) {
	err := error(&TimeoutError{Limit: time.Second})
	if !errors.Is(err, context.DeadlineExceeded) || err.Error() != "credbroker: no answer within 1s" {
		t.Error(err)
	}
}

func TestPauses(t *testing.T) {
	failed := &Error{Code: codes.Unavailable}
	var p pauses
	for _, want := range []int64{100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000} {
		if got := p.next(failed, 1).Milliseconds(); got != want {
			t.Errorf("%d instead of %d", got, want)
		}
	}
	p.reset()
	if got := p.next(&Error{RetryAfter: 7 * time.Second}, 0); got != 7*time.Second {
		t.Error(got)
	}
	for range 100 {
		if got := p.next(&UnreachableError{Err: errors.New("x")}, 0.999); got > longestPauseForLost {
			t.Error(got)
		}
	}
}

func TestNothingShowsASecret(t *testing.T) {
	const canary = "c4n4ry"
	f := newFleet(t, false)
	secret, proxy := canary, "http://user:"+canary+"@proxy.example"
	cluster := at(f.server)
	cluster.ProxyUrl, cluster.Config = &proxy, []byte(`{"x":"`+canary+`"}`)
	pair := f.server.Client(t, "ann")
	both := certificate("2", pair)
	both.Token = &secret
	f.fake.Set(paris, both, cluster)
	config, err := f.broker.RESTConfig(patient(t), parisRef)
	if err != nil {
		t.Fatal(err)
	}
	source := f.broker.Source(parisRef)
	credential := source.Current()
	if credential.Token() != canary || credential.Cluster().ProxyURL() != proxy {
		t.Fatal("the test has no secrets")
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	_, refused := client.Do(request(t, http.MethodGet, f.server.URL+"/version", nil))
	state := clusterStateFrom(&pb.ClusterState{Cluster: cluster})
	ref := parisRef.WithEnv("X", canary).WithCluster(*credential.Cluster())
	key := string(pair.Key[40:80])
	for name, value := range map[string]any{
		"credential": credential, "credential value": *credential, "source": source, "config": config, "config value": *config,
		"cluster": credential.Cluster(), "cluster value": *credential.Cluster(), "ref": ref, "ref in a struct": struct{ r Ref }{ref},
		"state": state, "state value": *state, "broker": f.broker, "client": client, "error": refused,
		"report": &Report{Credential: credential}, "nested": struct{ c *Credential }{credential},
	} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
			if text := fmt.Sprintf(verb, value); strings.Contains(text, canary) || strings.Contains(text, key) {
				t.Errorf("%s, %s: %s", name, verb, text)
			}
		}
	}
	for _, message := range []*pb.Credential{
		{Token: ptr(canary + "\n")}, {ClientCertificateData: []byte(canary)}, {ClientKeyData: []byte(canary)}, {},
		{ClientCertificateData: []byte(canary), ClientKeyData: []byte(canary)},
	} {
		var unusable *UnusableError
		if _, err := receive(message, nil, systemClock()); !errors.As(err, &unusable) || strings.Contains(err.Error(), canary) {
			t.Error(err)
		}
	}
}

func ptr(text string) *string { return &text }

func TestAReasonHasTheCodeOfTheDocument(t *testing.T) {
	document, err := os.ReadFile("../../docs/errors.md")
	if err != nil {
		t.Skip("outside of the repository: ", err)
	}
	for _, reason := range allReasons {
		_, row, found := strings.Cut(string(document), fmt.Sprintf("| `%s` | ", reason))
		name, _, _ := strings.Cut(row, " ")
		var code codes.Code
		if err := code.UnmarshalJSON([]byte(`"` + name + `"`)); !found || err != nil || code != reason.code() {
			t.Errorf("%s has %v, and the document says %q", reason, reason.code(), name)
		}
	}
}
