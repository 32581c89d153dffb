package credbroker

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
)

// newProxy starts a proxy for CONNECT, which counts the tunnels of a user.
func newProxy(t *testing.T, tunnels *atomic.Int64) *httptest.Server {
	t.Helper()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := (&http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}).BasicAuth()
		if r.Method != http.MethodConnect || user != "user" || password != "pa@ss" {
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		tunnels.Add(1)
		server, err := net.Dial("tcp", r.Host)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer server.Close()
		client, read, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer client.Close()
		// The client sends nothing before this answer, but net/http may have read from the connection already.
		_, _ = io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n")
		go func() {
			_, _ = io.Copy(server, read)
			server.Close()
		}()
		_, _ = io.Copy(client, server)
	}))
	t.Cleanup(proxy.Close)
	return proxy
}

func TestRequestsGoThroughTheProxyOfTheClusterAndTheConfigDoesNotHaveIt(t *testing.T) {
	f := newFleet(t, false)
	var tunnels atomic.Int64
	address := strings.Replace(newProxy(t, &tunnels).URL, "http://", "http://user:pa%40ss@", 1)
	cluster := at(f.server)
	cluster.ProxyUrl = &address
	f.fake.Set(paris, token("1"), cluster)
	config := f.config(t)
	if config.Proxy != nil {
		t.Error("a function makes configs unequal")
	}
	assertEqual(t, config, f.config(t))
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	if status := get(t, client, f.server.URL+"/version"); status != http.StatusOK || tunnels.Load() != 1 {
		t.Error(status, tunnels.Load())
	}
	f.fake.Set(paris, token("1"), at(f.server))
	direct := f.broker.RESTConfigs(patient(t), parisRef)
	for moved := range direct {
		if moved.Config.AuthProvider.Config[pluginKey] != config.AuthProvider.Config[pluginKey] {
			return
		}
	}
	t.Error("without the proxy it is the same endpoint")
}
