package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// A way from a client to a server. Each client has separate connections.
type way struct {
	name    string
	version int
	connect func(server string) client
}

type client struct {
	http    *http.Client
	base    string
	token   string
	version int
}

func (c client) get(ctx context.Context, path string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return nil, err
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	answer, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK || answer.ProtoMajor != c.version {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 300))
		answer.Body.Close()
		return nil, fmt.Errorf("GET %s: %s %s: %s", c.base+path, answer.Proto, answer.Status, text)
	}
	return answer, nil
}

func (c client) read(ctx context.Context, path string) ([]byte, error) {
	answer, err := c.get(ctx, path)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	return io.ReadAll(answer.Body)
}

func (c client) close() { c.http.CloseIdleConnections() }

func newClient(version int, roots *x509.CertPool, unix, base, token string) client {
	transport := &http.Transport{
		TLSClientConfig:    &tls.Config{RootCAs: roots},
		ForceAttemptHTTP2:  version == 2,
		DisableCompression: true,
	}
	if unix != "" {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", unix)
		}
	}
	return client{&http.Client{Transport: transport}, base, token, version}
}

// A program between clients and servers, with the ways through it.
type proxy struct {
	name string
	ways []way
	// A kubeconfig that leads through it, with a context for each server.
	kubeconfig string
	process    *process
	stop       func()
}

var versions = map[int]string{1: "HTTP/1.1", 2: "HTTP/2"}

func (w *world) direct(version int) way {
	return way{"direct, " + versions[version], version, func(server string) client {
		return newClient(version, authorities(w.plane), "", w.servers[server], w.token)
	}}
}

// Starts each proxy in turn, when it is called for.
func (w *world) proxies() []func(servers ...string) (*proxy, error) {
	all := []func(...string) (*proxy, error){w.credbroker, w.reverseProxy, w.kubectlProxy}
	if w.kubeconfigProxy != "" {
		all = append(all, w.kubeconfigProxyServer)
	}
	return all
}

func (w *world) all(servers ...string) ([]*proxy, error) {
	var all []*proxy
	for _, start := range w.proxies() {
		proxy, err := start(servers...)
		if err != nil {
			return nil, err
		}
		all = append(all, proxy)
	}
	return all, nil
}

func (w *world) credbroker(...string) (*proxy, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	directory, err := os.MkdirTemp(w.dir, "proxy-")
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(directory, "sandbox/socket")
	config, err := w.config(filepath.Base(directory), object{
		"directory": directory, "listen": object{"socket": socket}, "tls": object{"listen": port},
	})
	if err != nil {
		return nil, err
	}
	process, err := w.start("proxy", nil, w.broker, "proxy", "--config", config, "--socket", w.socket)
	if err != nil {
		return nil, err
	}
	if err := process.ready(listens("tcp", port)); err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(directory, "kubeconfig")
	err = w.run(w.broker, "kubeconfig", "proxy", "--config", config, "--socket", w.socket, "--output", kubeconfig)
	if err != nil {
		return nil, err
	}
	paths, err := w.paths(kubeconfig)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	authority, err := os.ReadFile(filepath.Join(directory, "ca.crt"))
	if err != nil {
		return nil, err
	}
	roots.AppendCertsFromPEM(authority)
	handles := map[string]string{}
	for server, path := range paths {
		if handles[server], err = w.handle(directory, path); err != nil {
			return nil, err
		}
	}
	var ways []way
	for version := 1; version <= 2; version++ {
		ways = append(ways, way{"credbroker, port, " + versions[version], version, func(server string) client {
			return newClient(version, roots, "", "https://"+port+paths[server], handles[server])
		}})
	}
	ways = append(ways, way{"credbroker, socket", 1, func(server string) client {
		return newClient(1, nil, socket, "http://localhost"+paths[server], "")
	}})
	return &proxy{"credbroker", ways, kubeconfig, process, process.stop}, nil
}

// The path of each context in a kubeconfig of the proxy.
func (w *world) paths(kubeconfig string) (map[string]string, error) {
	text, err := w.output(w.kubectl, "config", "view", "--kubeconfig", kubeconfig, "--output", "json")
	if err != nil {
		return nil, err
	}
	var config struct {
		Clusters []struct {
			Name    string
			Cluster struct{ Server string }
		}
		Contexts []struct {
			Name    string
			Context struct{ Cluster string }
		}
	}
	if err := json.Unmarshal(text, &config); err != nil {
		return nil, err
	}
	servers, paths := map[string]string{}, map[string]string{}
	for _, cluster := range config.Clusters {
		servers[cluster.Name] = cluster.Cluster.Server
	}
	for _, context := range config.Contexts {
		_, path, _ := strings.Cut(strings.TrimPrefix(servers[context.Context.Cluster], "https://"), "/")
		paths[context.Name] = "/" + path
	}
	return paths, nil
}

// What the shim prints as a token.
func (w *world) handle(directory, path string) (string, error) {
	text, err := w.output(w.shim, "--proxy", path, "--socket", filepath.Join(directory, "handles.sock"))
	if err != nil {
		return "", err
	}
	var credential struct{ Status struct{ Token string } }
	return credential.Status.Token, json.Unmarshal(text, &credential)
}

// `ReverseProxy` of Go with TLS on both sides.
func (w *world) reverseProxy(servers ...string) (*proxy, error) {
	own, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return w.each("ReverseProxy", "https://", servers, func(server string) (*process, string, error) {
		return w.addressed("reverse", own, "reverse", w.plane, w.servers[server], w.token)
	})
}

func (w *world) kubectlProxy(servers ...string) (*proxy, error) {
	return w.each("kubectl proxy", "http://", servers, func(server string) (*process, string, error) {
		return w.addressed("kubectl-proxy", w.kubectl, "proxy", "--kubeconfig", w.static, "--context", server, "--port", "0")
	})
}

// A proxy with a process for each server.
func (w *world) each(name, scheme string, servers []string, start func(string) (*process, string, error)) (*proxy, error) {
	proxy := &proxy{name: name}
	bases := map[string]string{}
	var processes []*process
	for _, server := range servers {
		process, address, err := start(server)
		if err != nil {
			return nil, err
		}
		bases[server] = scheme + address
		processes = append(processes, process)
	}
	proxy.process = processes[0]
	proxy.stop = func() {
		for _, process := range processes {
			process.stop()
		}
	}
	connect := func(version int) func(string) client {
		return func(server string) client { return newClient(version, authorities(w.plane), "", bases[server], "") }
	}
	if scheme == "http://" {
		proxy.ways = []way{{name, 1, connect(1)}}
	} else {
		proxy.ways = []way{{name + ", HTTP/1.1", 1, connect(1)}, {name + ", HTTP/2", 2, connect(2)}}
	}
	var err error
	proxy.kubeconfig, err = w.through(name, bases)
	return proxy, err
}

// It listens on one port that cannot be chosen, and serves contexts that have a cluster with such a name.
func (w *world) kubeconfigProxyServer(servers ...string) (*proxy, error) {
	const address, name = "127.0.0.1:64443", "kubeconfig-proxy"
	text, err := os.ReadFile(w.static)
	if err != nil {
		return nil, err
	}
	var config object
	if err := json.Unmarshal(text, &config); err != nil {
		return nil, err
	}
	bases := map[string]string{}
	for _, server := range servers {
		bases[server] = "http://" + address + "/" + server
		cluster := object{"name": server + "-" + name, "cluster": object{"server": bases[server]}}
		config["clusters"] = append(config["clusters"].(list), cluster)
	}
	kubeconfig, err := w.write(name+"-own.kubeconfig", config)
	if err != nil {
		return nil, err
	}
	if listens("tcp", address)() {
		return nil, fmt.Errorf("%s is in use", address)
	}
	process, err := w.start(name, nil, w.kubeconfigProxy, "server", "--kubeconfig", kubeconfig)
	if err != nil {
		return nil, err
	}
	if err := process.ready(listens("tcp", address)); err != nil {
		return nil, err
	}
	through, err := w.through(name, bases)
	connect := func(server string) client { return newClient(1, nil, "", bases[server], "") }
	return &proxy{name, []way{{name, 1, connect}}, through, process, process.stop}, err
}

// A kubeconfig without a credential, as clients of such proxies have it.
func (w *world) through(name string, bases map[string]string) (string, error) {
	var clusters, contexts list
	for server, base := range bases {
		cluster := object{"server": base}
		if strings.HasPrefix(base, "https://") {
			cluster["certificate-authority"] = filepath.Join(w.plane, "ca.pem")
		}
		clusters = append(clusters, object{"name": server, "cluster": cluster})
		contexts = append(contexts, object{"name": server, "context": object{"cluster": server, "user": "user"}})
	}
	// kubectl asks for a name if it has a server with TLS and nothing to show it.
	user := object{"name": "user", "user": object{"token": "none"}}
	return w.write(strings.ReplaceAll(name, " ", "-")+".kubeconfig", object{
		"apiVersion": "v1", "kind": "Config", "clusters": clusters, "contexts": contexts,
		"users": list{user},
	})
}
