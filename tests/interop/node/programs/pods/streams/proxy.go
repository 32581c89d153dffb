package main

import (
	"io"
	"net"
	"net/http"
	"sync/atomic"
)

// Where the ClusterProfiles find the proxy.
const proxyAddress = "127.0.0.1:3129"

// startProxy starts a proxy for CONNECT, and returns the number of its tunnels.
func startProxy() (*atomic.Int64, error) {
	listener, err := net.Listen("tcp", proxyAddress)
	if err != nil {
		return nil, err
	}
	tunnels := new(atomic.Int64)
	go http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		server, err := net.Dial("tcp", r.Host)
		if err != nil || r.Method != http.MethodConnect {
			http.Error(w, "only CONNECT", http.StatusBadGateway)
			return
		}
		defer server.Close()
		client, read, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer client.Close()
		tunnels.Add(1)
		_, _ = io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n")
		go func() {
			_, _ = io.Copy(server, read)
			server.Close()
		}()
		_, _ = io.Copy(client, server)
	}))
	return tunnels, nil
}
