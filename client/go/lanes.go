package credbroker

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

var errReplaced = errors.New("credbroker: the connection was closed, because its certificate was replaced")

// Lanes are the connections of one target: one lane for each client certificate, of which the newest takes new requests.
// When they are dropped, the idle connections are closed.
type lanes struct{ *laneState }

type laneState struct {
	target *target
	base   *http.Transport

	mu      sync.Mutex
	current *lane
	old     map[*lane]struct{}
}

// A lane is the connections with one client certificate, or without one.
type lane struct {
	fingerprint string
	transport   *http.Transport
	ended       atomic.Bool

	mu      sync.Mutex
	conns   map[*trackedConn]struct{}
	watches map[*watchBody]struct{}
}

func newLanes(t *target, base *http.Transport) *lanes {
	return &lanes{&laneState{target: t, base: base, old: map[*lane]struct{}{}}}
}

// take returns the newest credential and the lane for it, or nil if the credential has expired or was forgotten. Both are
// read under one lock, so that a request with an older credential never brings back the connections of its certificate.
func (l *laneState) take() (*Credential, *lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	credential := l.target.current()
	// After close, nothing would end the connections of another lane.
	if credential == nil || l.target.ctx.Err() != nil {
		return nil, nil
	}
	return credential, l.laneFor(credential)
}

// refresh leaves the connections of a certificate that was replaced, also while there are no requests.
func (l *laneState) refresh() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if credential := l.target.current(); credential != nil && l.current != nil {
		l.laneFor(credential)
	}
}

// The caller holds the lock.
func (l *laneState) laneFor(credential *Credential) *lane {
	left := l.current
	if left != nil && left.fingerprint == credential.fingerprint {
		return left
	}
	l.current = newLane(l.base, l.target, credential)
	if left != nil {
		l.leave(left)
	}
	return l.current
}

// leave closes the idle connections now and the others at the drain limit.
func (l *laneState) leave(left *lane) {
	l.old[left] = struct{}{}
	left.transport.CloseIdleConnections()
	time.AfterFunc(l.target.drain, func() {
		left.end()
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.old, left)
	})
}

func (l *laneState) closeIdle() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for old := range l.old {
		old.transport.CloseIdleConnections()
	}
	if l.current != nil {
		l.current.transport.CloseIdleConnections()
	}
}

// close ends all connections.
func (l *laneState) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for old := range l.old {
		old.end()
	}
	if l.current != nil {
		l.current.end()
	}
}

// newLane copies the transport that client-go made of the config, with its dialer, limits and authorities.
func newLane(base *http.Transport, t *target, credential *Credential) *lane {
	made := &lane{
		fingerprint: credential.fingerprint,
		conns:       map[*trackedConn]struct{}{},
		watches:     map[*watchBody]struct{}{},
	}
	transport := base.Clone()
	if transport.TLSClientConfig == nil {
		transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	// A session that is resumed has the identity of the certificate that it began with.
	if transport.TLSClientConfig.ClientSessionCache != nil {
		transport.TLSClientConfig.ClientSessionCache = tls.NewLRUClientSessionCache(0)
	}
	if certificate := credential.Certificate(); certificate != nil {
		transport.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return certificate, nil
		}
	}
	if t.proxy != nil {
		transport.Proxy = t.proxy
	}
	dial := transport.DialContext
	if dial == nil {
		dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return made.track(conn)
	}
	made.transport = utilnet.SetTransportDefaults(transport)
	return made
}

func (l *lane) track(conn net.Conn) (net.Conn, error) {
	tracked := &trackedConn{Conn: conn, lane: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended.Load() {
		conn.Close()
		return nil, errReplaced
	}
	l.conns[tracked] = struct{}{}
	return tracked, nil
}

// end closes all connections. Watches end first, as if the server had ended them.
func (l *lane) end() {
	l.mu.Lock()
	l.ended.Store(true)
	watches, conns := l.watches, l.conns
	l.watches, l.conns = map[*watchBody]struct{}{}, map[*trackedConn]struct{}{}
	l.mu.Unlock()
	for watch := range watches {
		watch.cancel()
	}
	for conn := range conns {
		conn.Conn.Close()
	}
}

// A trackedConn is closed with its lane.
type trackedConn struct {
	net.Conn
	lane *lane
}

func (c *trackedConn) Close() error {
	c.lane.mu.Lock()
	delete(c.lane.conns, c)
	c.lane.mu.Unlock()
	return c.Conn.Close()
}
