package credbroker

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	pb "github.com/credbroker/credbroker/client/go/credbrokerv1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
)

const pod = "/api/v1/namespaces/default/pods/echo/"

// echoOver sends a text to the pod, and fails unless the pod sends it back.
func echoOver(ctx context.Context, config *rest.Config, action string, overWebSocket bool) error {
	if action == "portforward" {
		return echoOverPort(ctx, config, overWebSocket)
	}
	at, err := url.Parse(config.Host + pod + action + "?stdin=true&stdout=true")
	if err != nil {
		return err
	}
	executor, err := remotecommand.NewSPDYExecutor(config, http.MethodPost, at)
	if overWebSocket {
		executor, err = remotecommand.NewWebSocketExecutor(config, http.MethodGet, at.String())
	}
	if err != nil {
		return err
	}
	var output bytes.Buffer
	streams := remotecommand.StreamOptions{Stdin: strings.NewReader("hello"), Stdout: &output}
	if err := executor.StreamWithContext(ctx, streams); err != nil {
		return err
	}
	if output.String() != "hello" {
		return fmt.Errorf("%q came back", output.String())
	}
	return nil
}

func echoOverPort(ctx context.Context, config *rest.Config, overWebSocket bool) error {
	dialer, err := dialerOf(config, overWebSocket)
	if err != nil {
		return err
	}
	stop, ready := make(chan struct{}), make(chan struct{})
	forwarder, err := portforward.New(dialer, []string{"0:80"}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- forwarder.ForwardPorts() }()
	select {
	case err := <-ended:
		return err
	case <-ready:
	}
	defer func() {
		close(stop)
		<-ended
	}()
	ports, err := forwarder.GetPorts()
	if err != nil {
		return err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", ports[0].Local))
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "hello"); err != nil {
		return err
	}
	answer := make([]byte, 5)
	if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != "hello" {
		return fmt.Errorf("%q came back, %w", answer, err)
	}
	return nil
}

func dialerOf(config *rest.Config, overWebSocket bool) (httpstream.Dialer, error) {
	at, err := url.Parse(config.Host + pod + "portforward")
	if err != nil {
		return nil, err
	}
	if overWebSocket {
		return portforward.NewSPDYOverWebsocketDialer(at, config)
	}
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return nil, err
	}
	return spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, at), nil
}

var upgrades = []struct {
	action        string
	overWebSocket bool
}{
	{"exec", false}, {"exec", true}, {"attach", false}, {"attach", true}, {"portforward", false}, {"portforward", true},
}

func TestExecAttachAndPortForwardHaveTheCredentialAndTheProxy(t *testing.T) {
	f := newFleet(t, false)
	var tunnels atomic.Int64
	proxy := strings.Replace(newProxy(t, &tunnels).URL, "http://", "http://user:pa%40ss@", 1)
	for _, holds := range []string{"token", "certificate", "token and certificate"} {
		for _, address := range []string{"", proxy} {
			name := strings.ReplaceAll(holds, " ", "-") + map[bool]string{true: "-through-a-proxy"}[address != ""]
			cluster := at(f.server)
			if address != "" {
				cluster.ProxyUrl = &address
			}
			f.fake.Set("clusterprofile/fleet/"+name, f.accepted(t, holds, "1"), cluster)
			config, err := f.broker.RESTConfig(patient(t), ClusterProfile("fleet", name))
			if err != nil {
				t.Fatal(err)
			}
			for _, upgrade := range upgrades {
				t.Run(fmt.Sprintf("%s/%s/%v", name, upgrade.action, upgrade.overWebSocket), func(t *testing.T) {
					before := tunnels.Load()
					if err := echoOver(patient(t), config, upgrade.action, upgrade.overWebSocket); err != nil {
						t.Fatal(err)
					}
					seen := f.server.Identities()
					if got := seen[len(seen)-1]; got != f.identity(holds) {
						t.Errorf("%q was sent for a %s", got, holds)
					}
					if through := tunnels.Load() > before; through != (address != "") {
						t.Errorf("through the proxy: %v", through)
					}
				})
			}
		}
	}
}

func TestTheNextUpgradeHasTheNextCredential(t *testing.T) {
	for _, overWebSocket := range []bool{false, true} {
		f := newFleet(t, false)
		config := f.config(t)
		for _, holds := range []string{"token", "certificate", "token and certificate", "certificate", "token"} {
			f.rotate(t, f.accepted(t, holds, fmt.Sprint(holds, len(f.server.Identities()))))
			if err := echoOver(patient(t), config, "exec", overWebSocket); err != nil {
				t.Fatal(err)
			}
			if seen := f.server.Identities(); seen[len(seen)-1] != f.identity(holds) {
				t.Errorf("%q was sent for a %s", seen[len(seen)-1], holds)
			}
		}
	}
}

func TestAnUpgradeOfAConfigWithoutAuthoritiesHasACertificate(t *testing.T) {
	for _, overWebSocket := range []bool{false, true} {
		f := newFleet(t, false)
		f.fake.Set(paris, f.accepted(t, "certificate", "1"), &pb.Cluster{Server: f.server.URL})
		// The authorities of the system do not know this server. That it is asked shows in the error.
		err := echoOver(patient(t), f.config(t), "exec", overWebSocket)
		if err == nil || !strings.Contains(err.Error(), "unknown authority") {
			t.Error(err)
		}
	}
}

func TestARejectedUpgradeIsReportedAndSentOnceMore(t *testing.T) {
	for _, upgrade := range upgrades {
		t.Run(fmt.Sprintf("%s/%v", upgrade.action, upgrade.overWebSocket), func(t *testing.T) {
			f := newFleet(t, false)
			config := f.config(t)
			f.server.RejectToken("token-1")
			f.fake.OnReport(func(string) *pb.WatchCredentialResponse {
				f.server.AcceptToken("token-2")
				return &pb.WatchCredentialResponse{Credential: token("2"), Cluster: at(f.server)}
			})
			if err := echoOver(patient(t), config, upgrade.action, upgrade.overWebSocket); err != nil {
				t.Error(err)
			}
			if reports := f.fake.Reports(); len(reports) != 1 || reports[0] != "1" {
				t.Errorf("%v was reported", reports)
			}
		})
	}
}

func TestAnUpgradeThroughAWrapperOfTheProgramHasTheCertificate(t *testing.T) {
	f := newFleet(t, false)
	f.rotate(t, f.accepted(t, "certificate", "2"))
	for _, overWebSocket := range []bool{false, true} {
		config, seen := f.config(t), 0
		config.Wrap(func(below http.RoundTripper) http.RoundTripper { return &countingWrapper{below, &seen} })
		if err := echoOver(patient(t), config, "exec", overWebSocket); err != nil || seen != 1 {
			t.Error(seen, err)
		}
	}
}

type countingWrapper struct {
	http.RoundTripper
	seen *int
}

func (w *countingWrapper) RoundTrip(request *http.Request) (*http.Response, error) {
	*w.seen++
	return w.RoundTripper.RoundTrip(request)
}

func (w *countingWrapper) WrappedRoundTripper() http.RoundTripper { return w.RoundTripper }

// accepted returns a credential that the server accepts.
func (f *fleet) accepted(t testing.TB, holds, generation string) *pb.Credential {
	t.Helper()
	credential := token(generation)
	*credential.Token = "token-1"
	if holds == "token" {
		return credential
	}
	if f.pair.Certificate == nil {
		f.pair = f.server.Client(t, "ann")
		f.server.AcceptCertificate(f.pair)
	}
	with := certificate(generation, f.pair)
	if holds == "token and certificate" {
		with.Token = credential.Token
	}
	return with
}

// identity is what the server sees of it.
func (f *fleet) identity(holds string) string {
	seen := ""
	if strings.HasPrefix(holds, "token") {
		seen = "token-1"
	}
	if holds != "token" {
		seen += f.pair.Fingerprint()
	}
	return seen
}
