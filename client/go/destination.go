package credbroker

import (
	"net"
	"net/netip"
	"net/url"
	"strings"
)

// A destination is the server that a URL leads to: scheme, host and port. User, password, path and query are left out, so
// it is safe to show. Equal destinations are the same server: case does not count, nor does a dot at the end of a host
// name, a missing port is that of the scheme, and IP addresses are compared as addresses.
type destination struct{ scheme, host, port string }

func destinationOf(u *url.URL) destination {
	d := destination{scheme: strings.ToLower(u.Scheme), port: u.Port()}
	if d.port == "" {
		d.port = map[string]string{"https": "443", "http": "80"}[d.scheme]
	}
	host := u.Hostname()
	if address, err := netip.ParseAddr(host); err == nil {
		d.host = address.String()
	} else {
		d.host = strings.ToLower(strings.TrimSuffix(host, "."))
	}
	return d
}

// isServerOf says whether u leads to this server.
func (d destination) isServerOf(u *url.URL) bool {
	// As client-go makes it of the config, in most cases.
	if u.Scheme == d.scheme && len(u.Host) == len(d.host)+1+len(d.port) &&
		u.Host[:len(d.host)] == d.host && u.Host[len(d.host)] == ':' && u.Host[len(d.host)+1:] == d.port {
		return true
	}
	return destinationOf(u) == d
}

func (d destination) String() string {
	if d.scheme == "" || d.host == "" {
		return "a URL without a scheme or host"
	}
	if d.port == "" {
		return d.scheme + "://" + d.host
	}
	return d.scheme + "://" + net.JoinHostPort(d.host, d.port)
}

// parseServer reads the URL of an API server. Its path is kept by the config.
func parseServer(server string) (destination, error) {
	parsed, err := url.Parse(server)
	if err != nil || parsed.Hostname() == "" || (parsed.Scheme != "https" && parsed.Scheme != "http") {
		return destination{}, &UnusableError{Problem: "the cluster's server is not a valid URL; use https://HOST:PORT"}
	}
	if parsed.User != nil {
		return destination{}, &UnusableError{Problem: "the cluster's server has a user in its URL; remove it"}
	}
	to := destinationOf(parsed)
	if to.scheme != "https" {
		return destination{}, &UnusableError{Problem: "no credential is sent to " + to.String() + " without TLS; use https"}
	}
	return to, nil
}
