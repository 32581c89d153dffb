package credbroker

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"weak"
)

// A NoCredentialError says that a request was not sent: no credential is valid, and none arrived within ten seconds. Send
// the request again later.
type NoCredentialError struct {
	// Why the broker has none.
	Err error
}

func (e *NoCredentialError) Error() string {
	return fmt.Sprintf("credbroker: the request needs a credential, but no credential is valid: %s", withReason(e.Err))
}

// Unwrap returns why the broker has no credential.
func (e *NoCredentialError) Unwrap() error { return e.Err }

// A MovedError says that a request was not sent: the cluster has another endpoint than the config, and the last credential
// for the old one has expired. Call RESTConfig again.
type MovedError struct {
	// What the config is for.
	Ref Ref
}

func (e *MovedError) Error() string {
	return fmt.Sprintf("credbroker: the endpoint of %s has moved; get another config", e.Ref)
}

// A target is a source and one endpoint that its credentials came with. It uses only credentials of this endpoint: when the
// cluster moves, the last one stays until it expires. A config names its target.
type target struct {
	name   string
	source *followed
	to     destination
	// For configs of Authenticate, which have their own authorities, TLS server name and proxy: the endpoint is the server.
	authenticated bool
	// nil: none. A function, so that no dumper of structs reads the password in it.
	proxy func(*http.Request) (*url.URL, error)
	last  atomic.Pointer[Credential]
	// The time after which the connections of a certificate that was replaced are closed.
	drain time.Duration

	ctx  context.Context
	stop context.CancelCauseFunc

	mu sync.Mutex
	// Weak, because client-go drops its transports when no client uses them.
	lanes map[weak.Pointer[http.Transport]]weak.Pointer[lanes]
}

func newTarget(
	source *followed, credential *Credential, to destination, proxy *url.URL, authenticated bool, drain time.Duration,
) *target {
	ctx, stop := context.WithCancelCause(source.ctx)
	t := &target{
		name:   source.ref.String() + "#" + rand.Text(),
		source: source, to: to, authenticated: authenticated, drain: drain, ctx: ctx, stop: stop,
		lanes: map[weak.Pointer[http.Transport]]weak.Pointer[lanes]{},
	}
	if proxy != nil {
		t.proxy = http.ProxyURL(proxy)
	}
	t.last.Store(credential)
	source.listen(t)
	registry.Store(t.name, t)
	return t
}

// retire forgets the name of a target that has moved, whose last credential has expired, and which has no clients.
// Otherwise each move of a cluster would leave one for the rest of the process.
func (t *target) retire() bool {
	if !t.hasMoved() || t.current() != nil || len(t.allLanes()) > 0 {
		return false
	}
	registry.Delete(t.name)
	t.source.unlisten(t)
	return true
}

// forget ends all connections.
func (t *target) forget() {
	registry.Delete(t.name)
	t.source.unlisten(t)
	t.stop(ErrClosed)
	for _, lanes := range t.allLanes() {
		lanes.close()
	}
}

// covers says whether a credential is for this endpoint.
func (t *target) covers(credential *Credential) bool {
	cluster := credential.cluster
	if !t.authenticated {
		return t.last.Load().cluster.sameEndpoint(cluster)
	}
	if cluster == nil {
		return true
	}
	named, err := parseServer(cluster.Server)
	return err == nil && named == t.to
}

// newest returns the newest credential of this endpoint, even if it has expired.
func (t *target) newest() *Credential {
	// In this order, so that an older credential never replaces a newer one.
	last, newest := t.last.Load(), t.source.current.Load()
	if newest == nil || newest == last || !t.covers(newest) {
		return last
	}
	t.last.CompareAndSwap(last, newest)
	return newest
}

// current returns the newest credential of this endpoint, unless it has expired.
func (t *target) current() *Credential {
	newest := t.newest()
	if !newest.isValid(t.source.shared.now()) {
		return nil
	}
	return newest
}

func (t *target) hasMoved() bool {
	newest := t.source.current.Load()
	return newest != nil && !t.covers(newest)
}

// ready waits up to ten seconds for a credential.
func (t *target) ready(ctx context.Context) error {
	if t.ctx.Err() != nil {
		return context.Cause(t.ctx)
	}
	if t.current() != nil {
		return nil
	}
	if t.hasMoved() {
		return &MovedError{Ref: t.source.ref}
	}
	limited, cancel := context.WithTimeoutCause(ctx, replacement, &TimeoutError{Limit: replacement})
	defer cancel()
	if _, err := t.source.ready(limited, brokerStart, t.current); err != nil {
		if ctx.Err() != nil {
			return err
		}
		if t.hasMoved() {
			return &MovedError{Ref: t.source.ref}
		}
		return &NoCredentialError{Err: err}
	}
	return nil
}

// reject reports a 401 response. What an endpoint rejects after the cluster has left it says nothing about the next
// credential.
func (t *target) reject(credential *Credential) {
	if !t.hasMoved() {
		t.source.reject(credential.generation)
	}
}

// replace waits for another credential of this endpoint, after a reject.
func (t *target) replace(ctx context.Context, credential *Credential) *Credential {
	return t.source.replaced(ctx, credential.generation, func() *Credential {
		if t.hasMoved() {
			return nil
		}
		return t.current()
	})
}

// rotate is called after each change of the source.
func (t *target) rotate() {
	for _, lanes := range t.allLanes() {
		lanes.refresh()
	}
}

// lanesOver returns the connections that all clients of one transport of client-go share.
func (t *target) lanesOver(base *http.Transport) *lanes {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := weak.Make(base)
	if found := t.lanes[key].Value(); found != nil {
		return found
	}
	made := newLanes(t, base)
	t.lanes[key] = weak.Make(made)
	runtime.AddCleanup(made, func(state *laneState) {
		state.closeIdle()
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.lanes[key].Value() == nil {
			delete(t.lanes, key)
		}
	}, made.laneState)
	return made
}

func (t *target) allLanes() []*lanes {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []*lanes
	for _, held := range t.lanes {
		if lanes := held.Value(); lanes != nil {
			all = append(all, lanes)
		}
	}
	return all
}
