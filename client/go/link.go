package credbroker

import (
	"context"
	"net"
	"sync"
	"time"

	pb "github.com/credbroker/credbroker/client/go/credbrokerv1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

const (
	// From connecting to the first bytes of the other end. A broker sends them immediately.
	handshake = 5 * time.Second
	// Room for a status whose message has the end of a plugin's stderr, in both of its headers.
	maxHeaderList = 256 * 1024
	// A connection with open calls is pinged when it has been silent for this long, as client-go pings API servers.
	pingAfter = 30 * time.Second
	// The connection counts as lost when the answer to a ping takes longer.
	pingLimit = 15 * time.Second
)

// A link is the connection to a broker, which all watches and calls share. It connects when it is needed, and again by itself.
type link struct {
	socket     socket
	references references

	mu     sync.Mutex
	conn   *grpc.ClientConn
	closed bool
	// The error of the last attempt to connect. grpc makes text of it, and its type decides what a caller can do.
	lastDial error
}

func newLink(at socket, tasks *tasks) *link {
	return &link{socket: at, references: references{tasks: tasks}}
}

func (l *link) client() (pb.CredentialBrokerClient, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, ErrClosed
	}
	if l.conn == nil {
		conn, err := l.open()
		if err != nil {
			return nil, err
		}
		l.conn = conn
	}
	return pb.NewCredentialBrokerClient(l.conn), nil
}

func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.conn != nil {
		l.conn.Close()
	}
}

func (l *link) open() (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///credbroker",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			conn, err := l.socket.dial(ctx)
			l.dialed(err)
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
}

func (l *link) dialed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastDial = err
}

func (l *link) dialError() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lastDial
}
