package fake

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// An APIServer has ConfigMaps that can be listed and watched, and pods that send back what they receive, and answers 401
// unless a request has a token or a client certificate that it accepts. The first request is never answered if it is for
// /hold.
type APIServer struct {
	// Its address, and the authority that signed its certificate.
	URL string
	CA  []byte

	authority *Authority
	server    *httptest.Server

	mu           sync.Mutex
	changed      chan struct{}
	tokens       map[string]bool
	certificates map[string]bool
	version      int
	names        []string
	counts       Counts
	open         int
	seen         []string
}

// Counts are what an APIServer has seen.
type Counts struct {
	// Connections that were opened.
	Dials int
	// Requests, and among them lists, watches and those that were answered with 401.
	Requests, Lists, Watches, Unauthorized int
}

// NewAPIServer starts a server that accepts nothing yet. http1 leaves out HTTP/2.
func NewAPIServer(t testing.TB, http1 bool) *APIServer {
	t.Helper()
	authority := NewAuthority(t)
	a := &APIServer{
		authority: authority, CA: authority.PEM, changed: make(chan struct{}),
		tokens: map[string]bool{}, certificates: map[string]bool{},
	}
	a.server = httptest.NewUnstartedServer(http.HandlerFunc(a.serve))
	a.server.EnableHTTP2 = !http1
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(authority.PEM)
	a.server.TLS = &tls.Config{
		Certificates: []tls.Certificate{authority.Server(t)}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: clients,
	}
	a.server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		a.change(func() {
			switch state {
			case http.StateNew:
				a.counts.Dials++
				a.open++
			case http.StateClosed, http.StateHijacked:
				a.open--
			}
		})
	}
	a.server.StartTLS()
	a.URL = a.server.URL
	t.Cleanup(func() {
		a.server.CloseClientConnections()
		a.server.Close()
	})
	return a
}

// Address returns the URL.
func (a *APIServer) Address() string { return a.URL }

// Authorities returns the authority that signed the certificate.
func (a *APIServer) Authorities() []byte { return a.CA }

// Client signs a client certificate, which is not accepted yet.
func (a *APIServer) Client(t testing.TB, user string) Pair { return a.authority.Client(t, user) }

// AcceptToken accepts a token from now on.
func (a *APIServer) AcceptToken(token string) { a.change(func() { a.tokens[token] = true }) }

// RejectToken answers 401 to a token from now on.
func (a *APIServer) RejectToken(token string) { a.change(func() { delete(a.tokens, token) }) }

// AcceptCertificate accepts a client certificate from now on.
func (a *APIServer) AcceptCertificate(pair Pair) {
	a.change(func() { a.certificates[pair.Fingerprint()] = true })
}

// RejectCertificate answers 401 to a client certificate from now on.
func (a *APIServer) RejectCertificate(pair Pair) {
	a.change(func() { delete(a.certificates, pair.Fingerprint()) })
}

// Create adds a ConfigMap, which watches get as an event.
func (a *APIServer) Create(name string) {
	a.change(func() { a.version++; a.names = append(a.names, name) })
}

// Dials returns the number of connections that were opened.
func (a *APIServer) Dials() string { return strconv.Itoa(a.Counts().Dials) }

// Counts returns what the server has seen so far.
func (a *APIServer) Counts() Counts {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.counts
}

// Identities returns who sent each request: the token, and the fingerprint of the certificate.
func (a *APIServer) Identities() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string(nil), a.seen...)
}

// Wait waits until a condition holds for the counts and the number of open connections.
func (a *APIServer) Wait(t testing.TB, done <-chan struct{}, condition func(counts Counts, open int) bool) {
	t.Helper()
	for {
		a.mu.Lock()
		holds, changed, counts, open := condition(a.counts, a.open), a.changed, a.counts, a.open
		a.mu.Unlock()
		if holds {
			return
		}
		select {
		case <-changed:
		case <-done:
			t.Fatalf("the server has seen %+v and has %d open connections", counts, open)
		}
	}
}

func (a *APIServer) change(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
	close(a.changed)
	a.changed = make(chan struct{})
}

func (a *APIServer) serve(w http.ResponseWriter, r *http.Request) {
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	certificate := ""
	if len(r.TLS.PeerCertificates) > 0 {
		certificate = fingerprint(r.TLS.PeerCertificates[0].Raw)
	}
	watch, collection := r.URL.Query().Get("watch") == "true", strings.HasSuffix(r.URL.Path, "/configmaps")
	accepted, first := false, false
	a.change(func() {
		first = a.counts.Requests == 0
		a.counts.Requests++
		a.seen = append(a.seen, token+certificate)
		accepted = a.tokens[token] || a.certificates[certificate]
		switch {
		case !accepted:
			a.counts.Unauthorized++
		case collection && watch && r.URL.Query().Get("sendInitialEvents") == "":
			a.counts.Watches++
		case collection && !watch && r.Method == http.MethodGet:
			a.counts.Lists++
		}
	})
	switch {
	case !accepted:
		fail(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
	case r.URL.Path == "/hold" && first:
		<-r.Context().Done()
	case isUpgrade(r.URL.Path):
		upgrade(w, r)
	case r.URL.Path == "/redirect":
		http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusTemporaryRedirect)
	case !collection:
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"major":"1","minor":"35","gitVersion":"v1.35.4"}`)
	case r.URL.Query().Get("sendInitialEvents") != "":
		fail(w, http.StatusUnprocessableEntity, "Invalid", "sendInitialEvents is not supported")
	case watch:
		a.watch(w, r)
	case r.Method == http.MethodGet:
		a.list(w)
	default:
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, configMap("created", 1))
	}
}

func (a *APIServer) list(w http.ResponseWriter) {
	a.mu.Lock()
	items := []json.RawMessage{}
	for i, name := range a.names {
		items = append(items, json.RawMessage(configMap(name, i+1)))
	}
	version := a.version
	a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMapList", "items": items,
		"metadata": map[string]string{"resourceVersion": strconv.Itoa(version)},
	})
}

// watch sends each event after the resource version of the request, without end.
func (a *APIServer) watch(w http.ResponseWriter, r *http.Request) {
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	for {
		w.(http.Flusher).Flush()
		a.mu.Lock()
		names, changed := a.names[min(from, len(a.names)):], a.changed
		a.mu.Unlock()
		for _, name := range names {
			from++
			fmt.Fprintf(w, "{\"type\":\"ADDED\",\"object\":%s}\n", configMap(name, from))
		}
		if len(names) > 0 {
			continue
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

func configMap(name string, version int) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"default","name":%q,"uid":"u-%d","resourceVersion":"%d"}}`, name, version, version)
}

func fail(w http.ResponseWriter, code int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"message":%q,"code":%d}`, reason, message, code)
}
