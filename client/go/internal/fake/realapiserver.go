package fake

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// A RealAPIServer is a control plane that tests/interop/controlplane/start.sh has started.
type RealAPIServer struct {
	// The address of a forwarder in front of it, and the authority that signed its certificate.
	URL string
	CA  []byte

	t      testing.TB
	folder string
	admin  *http.Client
	direct string
	dials  atomic.Int64
}

// NewRealAPIServer uses the control plane in the directory that the variable CREDBROKER_CONTROLPLANE names, and removes the
// ConfigMaps of the namespace default. It skips the test without the variable.
func NewRealAPIServer(t testing.TB) *RealAPIServer {
	t.Helper()
	a := &RealAPIServer{t: t, folder: named(t, "CREDBROKER_CONTROLPLANE", "the directory of a control plane")}
	a.direct, a.CA = strings.TrimSpace(string(a.read("server"))), a.read("ca.pem")
	a.URL = a.forward(t)
	certificate, err := tls.X509KeyPair(a.read("admin.pem"), a.read("admin.key"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.CA)
	a.admin = &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, RootCAs: roots},
	}}
	a.configMaps(http.MethodDelete, "", http.StatusOK)
	return a
}

// Address returns the URL.
func (a *RealAPIServer) Address() string { return a.URL }

// Authorities returns the authority that signed the certificate.
func (a *RealAPIServer) Authorities() []byte { return a.CA }

// Client signs a client certificate.
func (a *RealAPIServer) Client(t testing.TB, user string) Pair {
	t.Helper()
	plugin := exec.Command(filepath.FromSlash("../../tests/interop/controlplane/plugin"), a.folder, "certificate", user, "admins", "3600")
	plugin.Stderr = os.Stderr
	output, err := plugin.Output()
	if err != nil {
		t.Fatal(err)
	}
	var issued struct {
		Status struct{ ClientCertificateData, ClientKeyData string }
	}
	if err := json.Unmarshal(output, &issued); err != nil {
		t.Fatal(err)
	}
	return Pair{Certificate: []byte(issued.Status.ClientCertificateData), Key: []byte(issued.Status.ClientKeyData)}
}

// AcceptToken accepts a token from now on.
func (a *RealAPIServer) AcceptToken(token string) {
	a.t.Helper()
	if err := os.WriteFile(a.token(token), []byte(`{"user":"ann","groups":["admins"]}`), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// RejectToken rejects a token as soon as the server has forgotten its last verdict, which takes up to ten seconds.
func (a *RealAPIServer) RejectToken(token string) {
	a.t.Helper()
	if err := os.Remove(a.token(token)); err != nil {
		a.t.Fatal(err)
	}
}

// AcceptCertificate does nothing: the server accepts all.
func (a *RealAPIServer) AcceptCertificate(Pair) {}

// RejectCertificate does nothing: the server has no revocation.
func (a *RealAPIServer) RejectCertificate(Pair) {}

// Create adds a ConfigMap to the namespace default.
func (a *RealAPIServer) Create(name string) {
	a.t.Helper()
	body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q}}`, name)
	a.configMaps(http.MethodPost, body, http.StatusCreated)
}

// Dials returns the number of connections that were opened.
func (a *RealAPIServer) Dials() string { return strconv.FormatInt(a.dials.Load(), 10) }

// forward starts the forwarder, which counts connections and passes their bytes on, and returns its URL.
func (a *RealAPIServer) forward(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			a.dials.Add(1)
			server, err := net.Dial("tcp", strings.TrimPrefix(a.direct, "https://"))
			if err != nil {
				client.Close()
				continue
			}
			for from, to := range map[net.Conn]net.Conn{client: server, server: client} {
				go func() {
					_, _ = io.Copy(to, from)
					to.Close()
				}()
			}
		}
	}()
	return "https://" + listener.Addr().String()
}

func (a *RealAPIServer) configMaps(method, body string, expected int) {
	a.t.Helper()
	request, err := http.NewRequest(method, a.direct+"/api/v1/namespaces/default/configmaps", bytes.NewBufferString(body))
	if err != nil {
		a.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := a.admin.Do(request)
	if err != nil {
		a.t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != expected {
		a.t.Fatal(response.Status)
	}
}

func (a *RealAPIServer) token(token string) string { return filepath.Join(a.folder, "tokens", token) }

func (a *RealAPIServer) read(name string) []byte {
	a.t.Helper()
	text, err := os.ReadFile(filepath.Join(a.folder, name))
	if err != nil {
		a.t.Fatal(err)
	}
	return text
}
