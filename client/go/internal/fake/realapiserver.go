package fake

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// A RealAPIServer is a kube-apiserver with its etcd. It asks a webhook of the test about tokens, and accepts each client
// certificate of its authority.
type RealAPIServer struct {
	// Its address, and the authority that signed its certificate.
	URL string
	CA  []byte

	t         testing.TB
	authority *Authority
	admin     *http.Client
	mu        sync.Mutex
	tokens    map[string]bool
}

// NewRealAPIServer starts the programs that the variables KUBE_APISERVER and ETCD name. It skips the test without them.
func NewRealAPIServer(t testing.TB) *RealAPIServer {
	t.Helper()
	apiserver, etcd := Program(t, "KUBE_APISERVER"), Program(t, "ETCD")
	directory := t.TempDir()
	authority := NewAuthority(t)
	a := &RealAPIServer{t: t, authority: authority, CA: authority.PEM, tokens: map[string]bool{}}
	webhook := httptest.NewServer(http.HandlerFunc(a.review))
	t.Cleanup(webhook.Close)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	file := func(name string, text []byte) string {
		t.Helper()
		path := filepath.Join(directory, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	server := authority.serverPair(t, "kubernetes.default")
	accounts := file("accounts.key", encode("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key)))
	ports := freePorts(t, 3)
	store := fmt.Sprintf("http://127.0.0.1:%d", ports[0])
	peers := fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	a.URL = fmt.Sprintf("https://127.0.0.1:%d", ports[2])
	a.run(directory, "etcd", etcd, "--data-dir", filepath.Join(directory, "etcd"), "--listen-client-urls", store,
		"--advertise-client-urls", store, "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers,
		"--initial-cluster", "default="+peers)
	a.run(directory, "kube-apiserver", apiserver, "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", ports[2]), "--etcd-servers="+store,
		"--tls-cert-file="+file("server.pem", server.Certificate), "--tls-private-key-file="+file("server.key", server.Key),
		"--client-ca-file="+file("authority.pem", authority.PEM), "--authorization-mode=AlwaysAllow",
		"--service-account-issuer=https://kubernetes.default", "--service-account-key-file="+accounts,
		"--service-account-signing-key-file="+accounts, "--service-cluster-ip-range=10.0.0.0/24",
		"--disable-admission-plugins=ServiceAccount", "--endpoint-reconciler-type=none",
		"--authentication-token-webhook-version=v1", "--authentication-token-webhook-cache-ttl=0s",
		"--authentication-token-webhook-config-file="+file("webhook.json", webhookConfig(webhook.URL)),
		// An anonymous request would be allowed everything.
		"--anonymous-auth=false")
	pair := authority.Client(t, "admin")
	certificate, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.PEM)
	a.admin = &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, RootCAs: roots},
	}}
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(200 * time.Millisecond) {
		response, err := a.admin.Get(a.URL + "/readyz")
		if err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return a
			}
		}
		if time.Now().After(deadline) {
			log, _ := os.ReadFile(filepath.Join(directory, "kube-apiserver.log"))
			t.Fatalf("kube-apiserver is not ready: %v\n%s", err, log[max(0, len(log)-4000):])
		}
	}
}

// Address returns the URL.
func (a *RealAPIServer) Address() string { return a.URL }

// Authorities returns the authority that signed the certificate.
func (a *RealAPIServer) Authorities() []byte { return a.CA }

// Client signs a client certificate.
func (a *RealAPIServer) Client(t testing.TB, user string) Pair { return a.authority.Client(t, user) }

// AcceptToken accepts a token from now on.
func (a *RealAPIServer) AcceptToken(token string) { a.set(token, true) }

// RejectToken rejects a token as soon as the server has forgotten its last verdict, which takes up to ten seconds.
func (a *RealAPIServer) RejectToken(token string) { a.set(token, false) }

// AcceptCertificate does nothing: the server accepts all.
func (a *RealAPIServer) AcceptCertificate(Pair) {}

// RejectCertificate does nothing: the server has no revocation.
func (a *RealAPIServer) RejectCertificate(Pair) {}

// Create adds a ConfigMap to the namespace default.
func (a *RealAPIServer) Create(name string) {
	a.t.Helper()
	body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q}}`, name)
	response, err := a.admin.Post(a.URL+"/api/v1/namespaces/default/configmaps", "application/json", bytes.NewBufferString(body))
	if err != nil {
		a.t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusCreated {
		a.t.Fatal(response.Status)
	}
}

// Dials returns that the server does not count connections.
func (a *RealAPIServer) Dials() string { return "not counted" }

func (a *RealAPIServer) set(token string, accepted bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tokens[token] = accepted
}

// review answers a TokenReview.
func (a *RealAPIServer) review(w http.ResponseWriter, r *http.Request) {
	var review struct {
		APIVersion string         `json:"apiVersion"`
		Kind       string         `json:"kind"`
		Spec       map[string]any `json:"spec,omitempty"`
		Status     map[string]any `json:"status"`
	}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	token, _ := review.Spec["token"].(string)
	a.mu.Lock()
	accepted := a.tokens[token]
	a.mu.Unlock()
	review.Spec, review.Status = nil, map[string]any{"authenticated": accepted}
	if accepted {
		review.Status["user"] = map[string]any{"username": "ann"}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

// run starts a program that ends with the test.
func (a *RealAPIServer) run(directory, name, program string, arguments ...string) {
	a.t.Helper()
	log, err := os.Create(filepath.Join(directory, name+".log"))
	if err != nil {
		a.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	process := exec.CommandContext(ctx, program, arguments...)
	process.Stdout, process.Stderr = log, log
	if err := process.Start(); err != nil {
		stop()
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() {
		stop()
		_ = process.Wait()
		log.Close()
	})
}

func webhookConfig(url string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","current-context":"w",
		"clusters":[{"name":"w","cluster":{"server":%q}}],"users":[{"name":"u","user":{}}],
		"contexts":[{"name":"w","context":{"cluster":"w","user":"u"}}]}`, url)
}

// freePorts returns ports that no process listens on now.
func freePorts(t testing.TB, count int) []int {
	t.Helper()
	var ports []int
	for range count {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports
}
