package credbroker

import (
	"context"
	"crypto/tls"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/httpstream/spdy"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/transport/websocket"
)

// As client-go's own connections over SPDY are pinged.
const pingUpgrades = 5 * time.Second

// An upgrade is a RoundTripper of client-go for exec, attach and port-forward: it opens a separate connection for each
// request. client-go makes it of the config, which has neither the certificate nor the proxy of the cluster, so both are
// set in it. It is used for one request at a time.
type upgrade struct {
	target *target
	// nil: not one of client-go.
	spdy      *spdy.SpdyRoundTripper
	webSocket *websocket.RoundTripper
}

// upgradeIn looks for the RoundTripper in wrappers, which may be those of the program: the connection is made below them.
func (t *target) upgradeIn(below http.RoundTripper) upgrade {
	for {
		switch found := below.(type) {
		case *spdy.SpdyRoundTripper:
			// It is replaced only if it must be, because the proxy of the config cannot be read from it.
			if settings := found.TLSClientConfig(); settings != nil {
				followCertificates(settings)
			}
			return upgrade{target: t, spdy: found}
		case *websocket.RoundTripper:
			found.TLSConfig = withCertificates(found.TLSConfig)
			if t.proxy != nil {
				found.Proxier = t.proxy
			}
			return upgrade{target: t, webSocket: found}
		case utilnet.RoundTripperWrapper:
			below = found.WrappedRoundTripper()
		default:
			return upgrade{target: t}
		}
	}
}

// isReady makes the next connection use the credential, and the proxy of the cluster. It returns false if it cannot.
func (u upgrade) isReady(credential *Credential) bool {
	switch {
	case u.webSocket != nil || !u.target.needsConnections(credential):
		return true
	case u.spdy == nil:
		return false
	case u.target.proxy == nil && u.spdy.TLSClientConfig() != nil:
		return true
	}
	settings := spdy.RoundTripperConfig{
		TLS: withCertificates(u.spdy.TLSClientConfig()), Proxier: u.target.proxy, PingPeriod: pingUpgrades,
	}
	if settings.Proxier == nil {
		settings.Proxier = http.ProxyFromEnvironment
	}
	made, err := spdy.NewRoundTripperWithConfig(settings)
	if err != nil {
		return false
	}
	// client-go holds a pointer to it too, and takes the connection from there.
	*u.spdy = *made
	return true
}

type certificateKey struct{}

// withCertificate returns a copy of the request, whose connection gets the certificate of the credential. A RoundTripper of
// client-go changes the URL and the headers of a request.
func withCertificate(request *http.Request, credential *Credential) *http.Request {
	return request.Clone(context.WithValue(request.Context(), certificateKey{}, credential.Certificate()))
}

// withCertificates returns a copy of the settings, which followCertificates has changed.
func withCertificates(settings *tls.Config) *tls.Config {
	if settings == nil {
		settings = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	settings = settings.Clone()
	followCertificates(settings)
	return settings
}

// followCertificates makes a connection use the certificate of the request that it is opened for. Others with the same
// settings get none.
func followCertificates(settings *tls.Config) {
	before := settings.GetClientCertificate
	settings.GetClientCertificate = func(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if certificate, _ := info.Context().Value(certificateKey{}).(*tls.Certificate); certificate != nil {
			return certificate, nil
		}
		if before != nil {
			return before(info)
		}
		return &tls.Certificate{}, nil
	}
}

// isUnauthorized says whether the API server has answered 401. Over WebSocket that is an error, whose type depends on the
// version of client-go.
func (u upgrade) isUnauthorized(response *http.Response, err error) bool {
	if err == nil {
		return response.StatusCode == http.StatusUnauthorized
	}
	text := err.Error()
	return u.webSocket != nil && (strings.HasSuffix(text, ": Unauthorized") || strings.Contains(text, "bad handshake (401 "))
}
