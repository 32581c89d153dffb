package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"
)

// Separate processes, so that the memory of each can be measured. Each prints its address.
func serve(what string, arguments []string) bool {
	debug.SetGCPercent(100)
	switch what {
	case "fake":
		debug.SetGCPercent(1000)
		serveTLS(arguments[0], fake())
	case "reverse":
		serveTLS(arguments[0], reverse(arguments[0], arguments[1], arguments[2]))
	case "relay":
		relay(arguments[0])
	default:
		return false
	}
	return true
}

func listen() net.Listener {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(listener.Addr())
	return listener
}

// With the certificate of the API server.
func serveTLS(plane string, handler http.Handler) {
	server := &http.Server{Handler: handler, ErrorLog: log.New(io.Discard, "", 0)}
	log.Fatal(server.ServeTLS(listen(), filepath.Join(plane, "server.pem"), filepath.Join(plane, "server.key")))
}

// An API server without work: each answer is the same kilobyte, and logs are endless. `/written` has the bytes of logs.
func fake() http.Handler {
	object := []byte(`{"kind": "ConfigMap", "apiVersion": "v1", "data": {"key": "` + strings.Repeat("x", 960) + `"}}`)
	lines := bytes.Repeat([]byte(strings.Repeat("a line of a log ", 8)+"\n"), 32)
	var written atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/written":
			fmt.Fprint(w, written.Load())
		case strings.HasSuffix(r.URL.Path, "/log"):
			w.Header().Set("Content-Type", "text/plain")
			for {
				n, err := w.Write(lines)
				written.Add(int64(n))
				if err != nil || http.NewResponseController(w).Flush() != nil {
					return
				}
			}
		default:
			w.Header().Set("Content-Type", "application/json")
			w.Write(object)
		}
	})
}

// The least that a proxy of Go does: `ReverseProxy`, which adds a token.
func reverse(plane, upstream, token string) http.Handler {
	target, err := url.Parse(upstream)
	if err != nil {
		log.Fatal(err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: authorities(plane)}
	return &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Set("Authorization", "Bearer "+token)
		},
	}
}

func authorities(plane string) *x509.CertPool {
	pool := x509.NewCertPool()
	text, err := os.ReadFile(filepath.Join(plane, "ca.pem"))
	if err != nil {
		log.Fatal(err)
	}
	pool.AppendCertsFromPEM(text)
	return pool
}

// One way of the network between here and a server that is far away.
const oneWay = 20 * time.Millisecond

// The network to a server that is far away. The kernel accepts a connection immediately, so the first bytes take the time of
// that as well.
func relay(upstream string) {
	listener := listen()
	for {
		near, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		far, err := net.Dial("tcp", upstream)
		if err != nil {
			near.Close()
			continue
		}
		go delayed(near, far, 3*oneWay)
		go delayed(far, near, oneWay)
	}
}

func delayed(from, to net.Conn, first time.Duration) {
	type part struct {
		due   time.Time
		bytes []byte
	}
	parts := make(chan part, 4096)
	go func() {
		defer close(parts)
		buffer := make([]byte, 64<<10)
		for delay := first; ; delay = oneWay {
			n, err := from.Read(buffer)
			if err != nil {
				return
			}
			parts <- part{time.Now().Add(delay), bytes.Clone(buffer[:n])}
		}
	}()
	for part := range parts {
		time.Sleep(time.Until(part.due))
		if _, err := to.Write(part.bytes); err != nil {
			from.Close()
		}
	}
	to.Close()
}
