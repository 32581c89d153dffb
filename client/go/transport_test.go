package credbroker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"testing"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

func TestWrappersOfTheConfigSeeRequestsWithTokens(t *testing.T) {
	f := newFleet(t, false)
	config, seen := f.config(t), 0
	config.Wrap(func(below http.RoundTripper) http.RoundTripper {
		return roundTripperFunc(func(r *http.Request) (*http.Response, error) {
			seen++
			return below.RoundTrip(r)
		})
	})
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	if status := get(t, client, f.server.URL+"/version"); status != http.StatusOK || seen != 1 {
		t.Error(status, seen)
	}
	f.rotate(t, certificate("2", f.server.Client(t, "ann")))
	_, err = client.Do(request(t, http.MethodGet, f.server.URL+"/version", nil))
	var unsupported *UnsupportedTransportError
	if !errors.As(err, &unsupported) {
		t.Error(err)
	}
}

// clientGo is the minor version of client-go that the tests are built with, such as v0.35. Programs of tests do not have
// their modules in their build info, but the paths of files.
func clientGo(t *testing.T) string {
	t.Helper()
	file, _ := runtime.FuncForPC(reflect.ValueOf(rest.TransportFor).Pointer()).FileLine(0)
	found := regexp.MustCompile(`k8s\.io/client-go@(v[0-9]+\.[0-9]+)\.`).FindStringSubmatch(file)
	if found == nil {
		t.Fatalf("no version in %s", file)
	}
	return found[1]
}

// What is between the wrapper of this package and the connections decides whether certificates and proxies can be used. A
// minor version of client-go that is not here is not supported yet: look at its package transport, and add it.
func TestTheTransportOfEachMinorVersionOfClientGoIsTheOneThatIsReplaced(t *testing.T) {
	want, supported := map[string][]string{
		"v0.35": {"*http.Transport"},
		"v0.36": {"*transport.trackedTransport", "*http.Transport"},
		"v0.37": {"*transport.trackedTransport", "*http.Transport"},
	}[clientGo(t)]
	if !supported {
		t.Errorf("client-go %s is not in the table", clientGo(t))
	}
	f := newFleet(t, false)
	made := madeFor(t, f.config(t))
	if made.lanes == nil {
		t.Error("certificates and proxies cannot be used")
	}
	var found []string
	for below := made.below; below != nil; {
		found = append(found, fmt.Sprintf("%T", below))
		wrapper, ok := below.(utilnet.RoundTripperWrapper)
		if !ok {
			break
		}
		below = wrapper.WrappedRoundTripper()
	}
	if !slices.Equal(found, want) {
		t.Errorf("%v instead of %v", found, want)
	}
}

// madeFor returns the wrapper of this package in the transport of a config.
func madeFor(t *testing.T, config *rest.Config) *roundTripper {
	t.Helper()
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	for {
		if made, ok := transport.(*roundTripper); ok {
			return made
		}
		transport = transport.(utilnet.RoundTripperWrapper).WrappedRoundTripper()
	}
}

func TestAConfigWhoseTransportCannotBeUsedIsRefused(t *testing.T) {
	f := newFleet(t, false)
	hide := func(below http.RoundTripper) http.RoundTripper { return roundTripperFunc(below.RoundTrip) }
	base := &rest.Config{Host: f.server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: f.server.CA}, WrapTransport: hide}
	if _, err := f.broker.Authenticate(patient(t), parisRef, base); err != nil {
		t.Errorf("with a token: %v", err)
	}
	f.rotate(t, certificate("2", f.server.Client(t, "ann")))
	var unsupported *UnsupportedTransportError
	if config, err := f.broker.Authenticate(patient(t), parisRef, base); !errors.As(err, &unsupported) || config != nil {
		t.Error(config, err)
	}
	base = &rest.Config{Host: f.server.URL, Transport: hide(http.DefaultTransport)}
	if _, err := f.broker.Authenticate(patient(t), parisRef, base); !errors.As(err, &unsupported) {
		t.Error(err)
	}
}

// As SetK8SConfigDefaults of Argo CD does it.
func TestATransportOfTheProgramKeepsItsSettingsAndFollowsTheCredential(t *testing.T) {
	f := newFleet(t, false)
	config, dials := f.config(t), 0
	settings, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	config.Transport, err = rest.HTTPWrappersForConfig(config, utilnet.SetTransportDefaults(&http.Transport{
		TLSClientConfig: settings, MaxConnsPerHost: 7,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			dials++
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
	}))
	if err != nil {
		t.Fatal(err)
	}
	config.TLSClientConfig, config.AuthProvider = rest.TLSClientConfig{}, nil
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, generation := range []string{"1", "2", "3"} {
		if generation == "2" {
			f.server.AcceptToken("token-2")
			f.rotate(t, token("2"))
		}
		if generation == "3" {
			pair := f.server.Client(t, "ann")
			f.server.AcceptCertificate(pair)
			f.rotate(t, certificate("3", pair))
		}
		if status := get(t, client, f.server.URL+"/version"); status != http.StatusOK {
			t.Error(generation, status)
		}
	}
	if dials != 2 {
		t.Errorf("%d connections over the dialer of the program", dials)
	}
}

func TestANewCertificateResumesNoSessionOfTheOldOne(t *testing.T) {
	f := newFleet(t, false)
	config := f.config(t)
	settings, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	settings.ClientSessionCache = tls.NewLRUClientSessionCache(0)
	transport, err := rest.HTTPWrappersForConfig(config, &http.Transport{TLSClientConfig: settings})
	if err != nil {
		t.Fatal(err)
	}
	for _, generation := range []string{"2", "3"} {
		pair := f.server.Client(t, "user-"+generation)
		f.server.AcceptCertificate(pair)
		f.rotate(t, certificate(generation, pair))
		if status := get(t, &http.Client{Transport: transport}, f.server.URL+"/version"); status != http.StatusOK {
			t.Error(status)
		}
		if seen := f.server.Identities(); seen[len(seen)-1] != pair.Fingerprint() {
			t.Error("the server sees the old certificate")
		}
	}
}

func TestADialerThatMakesItsOwnTLSGetsTokensOnly(t *testing.T) {
	f := newFleet(t, false)
	config := f.config(t)
	settings, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.HTTPWrappersForConfig(config, &http.Transport{
		DialTLSContext: (&tls.Dialer{Config: settings}).DialContext,
	})
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: transport}
	if status := get(t, client, f.server.URL+"/version"); status != http.StatusOK {
		t.Error(status)
	}
	f.rotate(t, certificate("2", f.server.Client(t, "ann")))
	var unsupported *UnsupportedTransportError
	if _, err := client.Do(request(t, http.MethodGet, f.server.URL+"/version", nil)); !errors.As(err, &unsupported) {
		t.Error(err)
	}
}

type roundTripperFunc func(*http.Request) (*http.Response, error)

func (f roundTripperFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
