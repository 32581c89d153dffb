package credbroker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	pb "github.com/credbroker/credbroker/client/go/credbrokerv1"
	"github.com/credbroker/credbroker/client/go/internal/fake"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

func TestASourceFollowsRotationsAndKeepsItsCredentialWithoutABroker(t *testing.T) {
	broker := fake.NewBroker(t)
	broker.Set("provider/corp", token("1"), nil)
	client := connect(t, broker)
	source := client.Source(Provider("corp"))
	changes := source.Changes(patient(t))
	if first := <-changes; first.Generation() != "1" || first.Token() != "token-1" {
		t.Fatal(first)
	}
	broker.Set("provider/corp", token("2"), nil)
	if next := <-changes; next.Generation() != "2" {
		t.Fatal(next)
	}
	broker.Stop()
	for source.Failure() == nil {
		changed, failure := source.followed.state()
		if failure == nil {
			<-changed
		}
	}
	if source.Current().Generation() != "2" {
		t.Error("the last credential is gone")
	}
	broker.Set("provider/corp", token("3"), nil)
	broker.Start()
	if next := <-changes; next.Generation() != "3" || source.Failure() != nil {
		t.Error(next, source.Failure())
	}
}

func TestACallerWaitsForABrokerThatStarts(t *testing.T) {
	broker := fake.NewBroker(t)
	broker.Set("provider/corp", token("1"), nil)
	broker.Stop()
	client := connect(t, broker)
	source := client.Source(Provider("corp"))
	failed := make(chan struct{})
	go func() {
		defer close(failed)
		for {
			changed, failure := source.followed.state()
			if failure != nil {
				return
			}
			<-changed
		}
	}()
	<-failed
	broker.Start()
	if credential, err := source.Ready(patient(t)); err != nil || credential.Generation() != "1" {
		t.Error(credential, err)
	}
}

func TestAllWatchesShareOneStreamAndAFailureEndsOne(t *testing.T) {
	broker := fake.NewBroker(t)
	client := connect(t, broker)
	const clusters = 300
	var sources []*Source
	for i := range clusters {
		broker.Set(fmt.Sprintf("provider/p%d", i), token("1"), nil)
		sources = append(sources, client.Source(Provider(fmt.Sprintf("p%d", i))))
	}
	for _, source := range sources {
		if _, err := source.Ready(patient(t)); err != nil {
			t.Fatal(err)
		}
	}
	failed := client.Source(Provider("absent"))
	_, err := failed.Ready(patient(t))
	var answered *Error
	if !errors.As(err, &answered) || answered.Reason != ReasonUnknownProvider || answered.Code != codes.NotFound || answered.Provider != "corp" {
		t.Errorf("%#v", answered)
	}
	for i, source := range sources {
		changed, _ := source.followed.state()
		broker.Set(fmt.Sprintf("provider/p%d", i), token("2"), nil)
		<-changed
	}
	if broker.Streams() != 1 {
		t.Errorf("%d streams", broker.Streams())
	}
}

func TestALargeReferenceIsWatchedBesideTheStream(t *testing.T) {
	broker := fake.NewBroker(t)
	broker.Set("provider/corp", token("1"), nil)
	client := connect(t, broker)
	large := Provider("corp").WithEnv("LARGE", strings.Repeat("x", sharedSize))
	if _, err := client.Source(large).Ready(patient(t)); err != nil {
		t.Error(err)
	}
	if broker.Streams() != 0 {
		t.Error("it was sent in a message that is too large for a broker")
	}
}

func TestARequestOfTheStreamFitsWhatTheBrokerTakes(t *testing.T) {
	stream := &referenceStream{wake: make(chan struct{}, 1), watches: map[uint64]*referenceWatch{}}
	ref := Provider(strings.Repeat("p", 20_000)).toMessage()
	for range 10 {
		stream.watch(context.Background(), ref)
	}
	unsent := stream.watch(context.Background(), ref)
	stream.drop(unsent)
	if len(stream.remove) != 0 {
		t.Error("a watch that was not sent is removed")
	}
	for number := range uint64(5000) {
		stream.remove = append(stream.remove, number)
	}
	added, removed := 0, 0
	for request := stream.request(); request != nil; request = stream.request() {
		if size := proto.Size(request); size > 64*1024 {
			t.Errorf("%d bytes", size)
		}
		added += len(request.Add)
		removed += len(request.Remove)
	}
	if added != 10 || removed != 5000 {
		t.Errorf("%d added, %d removed", added, removed)
	}
}

func TestReplaceReturnsTheNextCredentialOrNothing(t *testing.T) {
	broker := fake.NewBroker(t)
	broker.Set("provider/corp", token("1"), nil)
	client := connect(t, broker)
	source := client.Source(Provider("corp"))
	if _, err := source.Ready(patient(t)); err != nil {
		t.Fatal(err)
	}
	if next := source.Replace(patient(t), "1"); next != nil {
		t.Error(next)
	}
	broker.OnReport(func(string) *pb.WatchCredentialResponse {
		return &pb.WatchCredentialResponse{Credential: token("2")}
	})
	// A generation is reported once a second at most, so ask until the next report.
	var next *Credential
	for done := patient(t); next == nil && done.Err() == nil; {
		next = source.Replace(patient(t), "1")
	}
	if next.Generation() != "2" {
		t.Error(next)
	}
	source.Reject("1")
	if reports := broker.Reports(); reports[len(reports)-1] != "1" || len(reports) != 2 {
		t.Error(reports)
	}
}

func TestAGenerationThatWasReportedIsNotReportedAgainAtOnce(t *testing.T) {
	client := connect(t, fake.NewBroker(t))
	source := client.Source(Provider("corp"))
	source.followed.current.Store(&Credential{generation: "1"})
	answered := rejection{generation: "1", reported: true}
	source.followed.mu.Lock()
	source.followed.rejection = answered
	source.followed.mu.Unlock()
	source.Reject("1")
	if source.followed.lastRejection() != answered {
		t.Error("it would be reported again")
	}
	source.Reject("0")
	if source.followed.lastRejection() != answered {
		t.Error("a generation that is no longer current would be reported")
	}
}

func TestReportsAndErrorsOfSingleCalls(t *testing.T) {
	broker := fake.NewBroker(t)
	broker.Set("provider/corp", token("1"), nil)
	client := connect(t, broker)
	credential, err := client.GetCredential(patient(t), Provider("corp"))
	if err != nil || credential.Generation() != "1" {
		t.Fatal(credential, err)
	}
	report, err := client.ReportRejected(patient(t), Provider("corp"), "1")
	if err != nil || report.Outcome != OutcomeNothingNewer || report.Credential.Generation() != "1" {
		t.Error(report, err)
	}
	if _, err := client.GetCredential(patient(t), Provider("none")); ReasonOf(err) != ReasonUnknownProvider {
		t.Error(err)
	}
}

func TestACallSaysHowLongTheCredentialHasToLive(t *testing.T) {
	broker := fake.NewBroker(t)
	broker.Set("provider/corp", token("1"), nil)
	client := connect(t, broker)
	for needed, options := range map[time.Duration][]GetOption{0: nil, 10 * time.Minute: {MinLifetime(10 * time.Minute)}} {
		if _, err := client.GetCredential(patient(t), Provider("corp"), options...); err != nil {
			t.Fatal(err)
		}
		sent := broker.MinLifetime()
		if sent.AsDuration() != needed || (sent == nil) != (needed == 0) {
			t.Error(sent, needed)
		}
	}
}

func TestAnOutcomeOfALaterBrokerIsItsNumber(t *testing.T) {
	if got := outcomeFrom(99); got != "99" {
		t.Error(got)
	}
	for number, name := range pb.ReportRejectedResponse_Outcome_name {
		if got := outcomeFrom(pb.ReportRejectedResponse_Outcome(number)); "OUTCOME_"+string(got) != name {
			t.Error(got)
		}
	}
}

func TestAClosedBrokerEndsEverything(t *testing.T) {
	broker := fake.NewBroker(t)
	broker.Set("provider/corp", token("1"), nil)
	client := connect(t, broker)
	changes := client.Source(Provider("corp")).Changes(context.Background())
	events := client.Clusters("").Events(context.Background())
	<-changes
	client.Close()
	if _, open := <-changes; open {
		t.Error("a channel is open")
	}
	for range events {
		t.Error("an event of no cluster")
	}
	if _, err := client.GetCredential(patient(t), Provider("corp")); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if _, err := client.RESTConfig(patient(t), parisRef); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

func TestAFailureEndsTheWaitAtOnce(t *testing.T) {
	broker := fake.NewBroker(t)
	broker.Fail(paris, fake.Failure(codes.NotFound, "UNKNOWN_CLUSTER_PROFILE", "no such profile"))
	client := connect(t, broker)
	if _, err := client.RESTConfig(patient(t), parisRef); ReasonOf(err) != ReasonUnknownClusterProfile {
		t.Error(err)
	}
}

func TestTheWaitForAPluginRunHasALimitAndTheSourceGoesOn(t *testing.T) {
	broker := fake.NewBroker(t)
	broker.Hold(paris)
	client := connect(t, broker, WithTimeout(50*time.Millisecond))
	var late *TimeoutError
	if _, err := client.RESTConfig(context.Background(), parisRef); !errors.As(err, &late) || late.Limit != 50*time.Millisecond {
		t.Error(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := client.RESTConfig(ended, parisRef); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	broker.Set(paris, token("1"), nil)
	if next := <-client.Source(parisRef).Changes(patient(t)); next.Generation() != "1" {
		t.Error(next)
	}
}

func TestBothClocksEndACredential(t *testing.T) {
	received := instant{wall: time.Unix(1000, 0), boot: time.Hour}
	end := newExpiry(time.Unix(1060, 0), received)
	for _, c := range []struct {
		wall  int64
		boot  time.Duration
		valid bool
	}{
		{1059, 59 * time.Second, true},
		{1060, 0, false},
		// The wall clock was stepped back, or the machine was suspended.
		{900, 61 * time.Second, false},
	} {
		now := instant{wall: time.Unix(c.wall, 0), boot: time.Hour + c.boot}
		if end.isAfter(now) != c.valid {
			t.Errorf("%+v", c)
		}
	}
}
