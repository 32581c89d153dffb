package credbroker

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	pb "github.com/credbroker/credbroker/client/go/credbrokerv1"
	"github.com/credbroker/credbroker/client/go/internal/fake"
	"k8s.io/client-go/rest"
)

// base returns a config of the program for the server of the fleet.
func (f *fleet) base() *rest.Config {
	return &rest.Config{Host: f.server.URL, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: f.server.CA}}
}

func (f *fleet) authenticate(t *testing.T, base *rest.Config) *http.Client {
	t.Helper()
	config, err := f.broker.Authenticate(patient(t), parisRef, base)
	if err != nil {
		t.Fatal(err)
	}
	return clientOf(t, config)
}

func clientOf(t *testing.T, config *rest.Config) *http.Client {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// Its authorities, TLS server name and proxy are those of the program.
func TestAConfigOfAuthenticateMovesOnlyWithTheServer(t *testing.T) {
	proxy, name := "http://proxy.example", "paris.example"
	for what, change := range map[string]func(*pb.Cluster){
		"authorities":     func(c *pb.Cluster) { c.CertificateAuthorityData = fake.NewAuthority(t).PEM },
		"TLS server name": func(c *pb.Cluster) { c.TlsServerName = &name },
		"proxy":           func(c *pb.Cluster) { c.ProxyUrl = &proxy },
	} {
		t.Run(what, func(t *testing.T) {
			f := newFleet(t, false)
			client := f.authenticate(t, f.base())
			cluster := at(f.server)
			change(cluster)
			f.server.AcceptToken("token-2")
			f.fake.Set(paris, token("2"), cluster)
			f.await(t, "2")
			f.server.RejectToken("token-1")
			if status := get(t, client, f.server.URL+"/version"); status != http.StatusOK {
				t.Error(status)
			}
			f.server.RejectToken("token-2")
			if status := get(t, client, f.server.URL+"/version"); status != http.StatusUnauthorized {
				t.Error(status)
			}
			if reports := f.fake.Reports(); !reflect.DeepEqual(reports, []string{"2"}) {
				t.Errorf("%v was reported", reports)
			}
		})
	}
}

func TestACredentialOfAnotherServerIsNotThatOfAConfigOfAuthenticate(t *testing.T) {
	f := newFleet(t, false)
	client := f.authenticate(t, f.base())
	f.fake.Set(paris, token("2"), at(fake.NewAPIServer(t, false)))
	f.await(t, "2")
	if status := get(t, client, f.server.URL+"/version"); status != http.StatusOK {
		t.Error(status)
	}
	f.expire()
	var moved *MovedError
	if _, err := client.Do(request(t, http.MethodGet, f.server.URL+"/version", nil)); !errors.As(err, &moved) {
		t.Error(err)
	}
	if seen := f.server.Identities(); !reflect.DeepEqual(seen, []string{"token-1"}) {
		t.Errorf("%v was sent", seen)
	}
}

func TestTheProxyOfTheClusterIsNotThatOfAConfigOfAuthenticate(t *testing.T) {
	for _, authenticateFirst := range []bool{false, true} {
		f := newFleet(t, false)
		var tunnels atomic.Int64
		address := strings.Replace(newProxy(t, &tunnels).URL, "http://", "http://user:pa%40ss@", 1)
		cluster := at(f.server)
		cluster.ProxyUrl = &address
		f.fake.Set(paris, token("1"), cluster)
		var direct, proxied *http.Client
		if authenticateFirst {
			direct, proxied = f.authenticate(t, f.base()), f.client(t)
		} else {
			proxied, direct = f.client(t), f.authenticate(t, f.base())
		}
		for client, want := range map[*http.Client]int64{direct: 0, proxied: 1} {
			before := tunnels.Load()
			if status := get(t, client, f.server.URL+"/version"); status != http.StatusOK {
				t.Error(status)
			}
			if got := tunnels.Load() - before; got != want {
				t.Errorf("authenticateFirst=%v: %d connections through the proxy instead of %d", authenticateFirst, got, want)
			}
		}
	}
}

// client-go 0.36 reads the file of a config again, in a transport that this module replaces.
func TestAuthenticateReadsTheAuthoritiesForEachConfig(t *testing.T) {
	f := newFleet(t, false)
	file := filepath.Join(t.TempDir(), "ca.crt")
	write := func(authorities []byte) {
		if err := os.WriteFile(file, authorities, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	base := &rest.Config{Host: f.server.URL, TLSClientConfig: rest.TLSClientConfig{CAFile: file}}
	var unreadable *os.PathError
	if _, err := f.broker.Authenticate(patient(t), parisRef, base); !errors.As(err, &unreadable) {
		t.Error(err)
	}
	write(fake.NewAuthority(t).PEM)
	before, err := f.broker.Authenticate(patient(t), parisRef, base)
	if err != nil {
		t.Fatal(err)
	}
	write(f.server.CA)
	after, err := f.broker.Authenticate(patient(t), parisRef, base)
	if err != nil {
		t.Fatal(err)
	}
	if before.CAFile != "" || reflect.DeepEqual(before, after) || base.CAFile != file || base.CAData != nil {
		t.Error("the configs do not differ with their authorities")
	}
	if _, err := clientOf(t, before).Do(request(t, http.MethodGet, f.server.URL+"/version", nil)); err == nil {
		t.Error("a config has the authorities of the next one")
	}
	if status := get(t, clientOf(t, after), f.server.URL+"/version"); status != http.StatusOK {
		t.Error(status)
	}
}
