package credbroker

import (
	"context"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

const (
	// The broker allows 1,000 by default; fewer keep what one lost connection costs small.
	watchesPerConnection = 100
	// From connecting to the first bytes of the other end. A broker sends them at once.
	handshake = 5 * time.Second
	// Room for a status whose message has the end of a plugin's stderr, in both of its headers.
	maxHeaderList = 256 * 1024
	// A connection with open calls is pinged when it has been silent for this long, as client-go pings API servers.
	pingAfter = 30 * time.Second
	// The connection counts as lost when the answer to a ping takes longer.
	pingLimit = 15 * time.Second
)

// A pool opens as many connections as the watches need, because the broker limits the watches of each.
type pool struct {
	socket socket

	mu     sync.Mutex
	slots  []*slot
	closed bool
}

// A slot is one connection, which connects again by itself.
type slot struct {
	conn    *grpc.ClientConn
	watches int
	// The broker refused another watch.
	full bool

	mu sync.Mutex
	// The error of the last attempt to connect. grpc makes text of it, and its type decides what a caller can do.
	lastDial error
}

func newPool(at socket) *pool { return &pool{socket: at} }

// call returns the connection for a call that is not a watch.
func (p *pool) call() (*slot, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.slots) > 0 && !p.closed {
		return p.slots[0], nil
	}
	return p.open()
}

// watch returns a connection with room for a watch. The caller releases it.
func (p *pool) watch() (*slot, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, slot := range p.slots {
		if !p.closed && !slot.full && slot.watches < watchesPerConnection {
			slot.watches++
			return slot, nil
		}
	}
	slot, err := p.open()
	if err == nil {
		slot.watches++
	}
	return slot, err
}

// release ends a watch. err is what ended it.
func (p *pool) release(slot *slot, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	slot.watches--
	slot.full = (slot.full || fillsConnection(err)) && slot.watches > 0
	if slot.watches > 0 {
		return
	}
	// The first one stays, for calls.
	for i, other := range p.slots {
		if other == slot && i > 0 {
			p.slots = append(p.slots[:i:i], p.slots[i+1:]...)
			slot.conn.Close()
			return
		}
	}
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, slot := range p.slots {
		slot.conn.Close()
	}
	p.slots = nil
}

func (p *pool) open() (*slot, error) {
	if p.closed {
		return nil, ErrClosed
	}
	slot := &slot{}
	conn, err := grpc.NewClient("passthrough:///credbroker",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			conn, err := p.socket.dial(ctx)
			slot.dialed(err)
			return conn, err
		}),
		grpc.WithAuthority("localhost"),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithMaxHeaderListSize(maxHeaderList),
		grpc.WithConnectParams(grpc.ConnectParams{
			// A broker restarts within a moment, and its clients must be current again within five seconds.
			Backoff:           backoff.Config{BaseDelay: firstPause, Multiplier: 2, Jitter: 0.25, MaxDelay: longestPauseForLost},
			MinConnectTimeout: handshake,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingLimit}),
	)
	if err != nil {
		return nil, err
	}
	slot.conn = conn
	p.slots = append(p.slots, slot)
	return slot, nil
}

func (s *slot) dialed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastDial = err
}

func (s *slot) dialError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastDial
}
