package credbroker

import (
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"

	pb "github.com/credbroker/credbroker/client/go/credbrokerv1"
	"github.com/credbroker/credbroker/client/go/internal/fake"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

func assertEqual(t *testing.T, a, b *rest.Config) {
	t.Helper()
	for name, equal := range map[string]bool{
		"reflect":          reflect.DeepEqual(a, b),
		"semantic":         equality.Semantic.DeepEqual(a, b),
		"reflect, copies":  reflect.DeepEqual(rest.CopyConfig(a), rest.CopyConfig(b)),
		"semantic, copies": equality.Semantic.DeepEqual(rest.CopyConfig(a), rest.CopyConfig(b)),
		"values":           reflect.DeepEqual(*a, *b),
	} {
		if !equal {
			t.Errorf("the configs are not equal (%s)", name)
		}
	}
}

func TestAConfigIsEqualToTheNextOneThroughRotations(t *testing.T) {
	f := newFleet(t, false)
	first := f.config(t)
	assertEqual(t, first, f.config(t))
	f.rotate(t, token("2"))
	assertEqual(t, first, f.config(t))
	f.rotate(t, certificate("3", f.server.Client(t, "ann")))
	assertEqual(t, first, f.config(t))
	f.fake.Stop()
	f.fake.Start()
	f.rotate(t, token("4"))
	assertEqual(t, first, f.config(t))

	f.fake.Set("clusterprofile/fleet/tokyo", token("1"), at(f.server))
	other, err := f.broker.RESTConfig(patient(t), ClusterProfile("fleet", "tokyo"))
	if err != nil {
		t.Fatal(err)
	}
	if reflect.DeepEqual(first, other) {
		t.Error("another cluster has the same config")
	}
}

func TestTheNameInAConfigCannotBeGuessed(t *testing.T) {
	f := newFleet(t, false)
	first := f.config(t).AuthProvider.Config[pluginKey]
	f.broker.Forget(parisRef)
	second := f.config(t).AuthProvider.Config[pluginKey]
	name := parisRef.String() + "#"
	if !strings.HasPrefix(first, name) || len(first) < len(name)+26 || first == second {
		t.Error(first, second)
	}
	stolen := &rest.Config{Host: f.server.URL, AuthProvider: &clientcmdapi.AuthProviderConfig{
		Name: AuthProviderName, Config: map[string]string{pluginKey: first},
	}}
	if _, err := rest.HTTPClientFor(stolen); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

func TestAChangeOfOneConfigDoesNotReachTheNext(t *testing.T) {
	f := newFleet(t, false)
	first := f.config(t)
	first.CAData[0], first.AuthProvider.Config[pluginKey] = 'x', "x"
	if next := f.config(t); reflect.DeepEqual(first, next) || next.CAData[0] == 'x' {
		t.Error("configs share memory")
	}
}

func TestAMovedEndpointIsAnotherConfigAndTheOldOneKeepsItsCredential(t *testing.T) {
	f := newFleet(t, false)
	config, client := f.config(t), f.client(t)
	configs := f.broker.RESTConfigs(patient(t), parisRef)
	assertEqual(t, without(config), <-configs)

	there := fake.NewAPIServer(t, false)
	there.AcceptToken("token-2")
	f.fake.Set(paris, token("2"), at(there))
	moved := <-configs
	if moved.Host != there.URL || reflect.DeepEqual(without(config), moved) {
		t.Error("the config has not moved")
	}
	client2, err := rest.HTTPClientFor(moved)
	if err != nil {
		t.Fatal(err)
	}
	if status := get(t, client2, there.URL+"/version"); status != http.StatusOK {
		t.Error(status)
	}
	// The new token never reaches the old endpoint, and its 401s say nothing about it.
	f.server.RejectToken("token-1")
	if status := get(t, client, f.server.URL+"/version"); status != http.StatusUnauthorized {
		t.Error(status)
	}
	if seen, reports := f.server.Identities(), f.fake.Reports(); !reflect.DeepEqual(seen, []string{"token-1"}) || len(reports) > 0 {
		t.Errorf("%v was sent, %v was reported", seen, reports)
	}

	f.fake.Set(paris, token("3"), at(f.server))
	back := <-configs
	assertEqual(t, without(config), back)
}

// without returns a config as the broker returns it.
func without(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS = 0
	return config
}

// expire moves both clocks of the client behind the end of all credentials that it has.
func (f *fleet) expire() {
	late := systemClock()
	late.wall, late.boot = late.wall.Add(2*patience*60), late.boot+2*patience*60
	f.late.Store(&late)
}

func TestAnExpiredCredentialOfAnEndpointThatMovedIsNotSent(t *testing.T) {
	f := newFleet(t, false)
	client := f.client(t)
	f.fake.Set(paris, &pb.Credential{Generation: "2", Token: token("2").Token}, at(fake.NewAPIServer(t, false)))
	f.await(t, "2")
	f.expire()
	_, err := client.Do(request(t, http.MethodGet, f.server.URL+"/version", nil))
	var moved *MovedError
	if !errors.As(err, &moved) || len(f.server.Identities()) > 0 {
		t.Error(err)
	}
	// It would fail in another way without its target.
	f.config(t)
	if _, err := client.Do(request(t, http.MethodGet, f.server.URL+"/version", nil)); !errors.As(err, &moved) {
		t.Error(err)
	}
}

func TestEndpointsThatTheClusterHasLeftAreNotKept(t *testing.T) {
	f := newFleet(t, false)
	first := f.config(t)
	f.fake.Set(paris, &pb.Credential{Generation: "2", Token: token("2").Token}, at(fake.NewAPIServer(t, false)))
	f.await(t, "2")
	f.config(t)
	if len(f.broker.targets) != 2 {
		t.Error("a config lost its credential before that expired")
	}
	f.fake.Set(paris, &pb.Credential{Generation: "3", Token: token("3").Token}, at(fake.NewAPIServer(t, false)))
	f.await(t, "3")
	f.expire()
	f.config(t)
	// The credential of the second one has no expiry.
	if len(f.broker.targets) != 2 {
		t.Errorf("%d targets are held", len(f.broker.targets))
	}
	if _, err := rest.HTTPClientFor(first); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

func TestAnEndpointThatCannotBeUsedIsRefusedWithTheReason(t *testing.T) {
	f := newFleet(t, false)
	for problem, change := range map[string]func(*pb.Cluster){
		"not a valid URL":          func(c *pb.Cluster) { c.Server = "paris.example" },
		"without TLS":              func(c *pb.Cluster) { c.Server = "http://paris.example" },
		"user in its URL":          func(c *pb.Cluster) { c.Server = "https://c4n4ry:c4n4ry@paris.example" },
		"does not verify them":     func(c *pb.Cluster) { c.InsecureSkipTlsVerify = true },
		"proxy is not a valid URL": func(c *pb.Cluster) { proxy := "http://u:c4n4ry@ proxy"; c.ProxyUrl = &proxy },
		"proxy is not a valid":     func(c *pb.Cluster) { proxy := "ftp://u:c4n4ry@proxy"; c.ProxyUrl = &proxy },
		"unable to load root":      func(c *pb.Cluster) { c.CertificateAuthorityData = []byte("none") },
	} {
		cluster := at(f.server)
		change(cluster)
		name := strings.ReplaceAll(problem, " ", "-")
		f.fake.Set("clusterprofile/fleet/"+name, token("1"), cluster)
		_, err := f.broker.RESTConfig(patient(t), ClusterProfile("fleet", name))
		var unusable *UnusableError
		if !errors.As(err, &unusable) || !strings.Contains(err.Error(), problem) || strings.Contains(err.Error(), "c4n4ry") {
			t.Errorf("%s: %v", problem, err)
		}
	}
	f.fake.Set("provider/corp", token("1"), nil)
	_, err := f.broker.RESTConfig(patient(t), Provider("corp"))
	var none *NoEndpointError
	if !errors.As(err, &none) {
		t.Error(err)
	}
}

func TestTheCredentialOfAProviderGoesToTheServerThatIsNamed(t *testing.T) {
	f := newFleet(t, false)
	f.fake.Set("provider/corp", token("1"), nil)
	base := &rest.Config{Host: f.server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: f.server.CA}}
	config, err := f.broker.Authenticate(patient(t), Provider("corp"), base)
	if err != nil {
		t.Fatal(err)
	}
	again, err := f.broker.Authenticate(patient(t), Provider("corp"), base)
	if err != nil {
		t.Fatal(err)
	}
	assertEqual(t, config, again)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	if status := get(t, client, f.server.URL+"/version"); status != http.StatusOK {
		t.Error(status)
	}
	base.BearerToken = "c4n4ry"
	if _, err := f.broker.Authenticate(patient(t), Provider("corp"), base); err == nil || strings.Contains(err.Error(), "c4n4ry") {
		t.Error(err)
	}
	elsewhere := &rest.Config{Host: "https://elsewhere.example"}
	var other *OtherServerError
	if _, err := f.broker.Authenticate(patient(t), parisRef, elsewhere); !errors.As(err, &other) {
		t.Error(err)
	}
}

func TestAForgottenCredentialIsNotUsed(t *testing.T) {
	f := newFleet(t, false)
	config, client := f.config(t), f.client(t)
	if status := get(t, client, f.server.URL+"/version"); status != http.StatusOK {
		t.Fatal(status)
	}
	f.broker.Forget(parisRef)
	if _, err := client.Do(request(t, http.MethodGet, f.server.URL+"/version", nil)); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if _, err := rest.HTTPClientFor(config); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	f.server.Wait(t, patient(t).Done(), func(_ fake.Counts, open int) bool { return open == 0 })
}
