package credbroker

import (
	"fmt"
	"io"
	"net/http"
	"reflect"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// An OtherServerError says that a request was not sent: it goes to another server than the credential is for, for example
// after a redirect.
type OtherServerError struct {
	// The server of the request, and the one of the credential.
	Request, Credential string
}

func (e *OtherServerError) Error() string {
	return fmt.Sprintf("credbroker: no credential is sent to %s, because it is for %s", e.Request, e.Credential)
}

// An UnsupportedTransportError says that a config cannot be used, or that a request was not sent: the credential has a
// client certificate, or the cluster a proxy, and the config has a WrapTransport or another RoundTripper that hides the
// connections. Make the transport first, and wrap that:
//
//	transport, err := rest.TransportFor(config)
//	config = rest.AnonymousClientConfig(config)
//	config.TLSClientConfig = rest.TLSClientConfig{}
//	config.Transport = wrap(transport)
type UnsupportedTransportError struct {
	// The type of the RoundTripper.
	Type string
}

func (e *UnsupportedTransportError) Error() string {
	return fmt.Sprintf("credbroker: the client certificate or the proxy cannot be used through a %s; wrap the transport that rest.TransportFor returns", e.Type)
}

// A roundTripper adds the current credential to requests.
type roundTripper struct {
	target *target
	below  http.RoundTripper
	// nil: requests go through below.
	lanes *lanes
	// What below is then, if it is for exec, attach and port-forward.
	upgrade upgrade
}

// roundTripper replaces the transport that client-go made of the config by connections that follow the certificate. Any
// other RoundTripper is kept, and those of client-go for exec, attach and port-forward follow the certificate too.
func (t *target) roundTripper(below http.RoundTripper) http.RoundTripper {
	made := &roundTripper{target: t, below: below}
	if base := replaceable(below); base != nil {
		made.lanes = t.lanesOver(base)
	} else {
		made.upgrade = t.upgradeIn(below)
	}
	return made
}

// needsConnections says whether a header is not enough to use the credential.
func (t *target) needsConnections(credential *Credential) bool {
	return credential.certificate != nil || t.proxy != nil
}

// replaceable returns the transport in the wrappers of client-go's own cache, or nil if there are others.
func replaceable(below http.RoundTripper) *http.Transport {
	for {
		if transport, ok := below.(*http.Transport); ok {
			if transport.DialTLSContext != nil {
				// Its connections cannot get the certificate.
				return nil
			}
			return transport
		}
		wrapper, ok := below.(utilnet.RoundTripperWrapper)
		if !ok || reflect.Indirect(reflect.ValueOf(below)).Type().PkgPath() != "k8s.io/client-go/transport" {
			return nil
		}
		below = wrapper.WrappedRoundTripper()
	}
}

// RoundTrip implements http.RoundTripper.
func (r *roundTripper) RoundTrip(request *http.Request) (*http.Response, error) {
	if !r.target.to.isServerOf(request.URL) {
		closeBody(request)
		return nil, &OtherServerError{Request: destinationOf(request.URL).String(), Credential: r.target.to.String()}
	}
	credential, response, err := r.send(request)
	if credential == nil || !r.upgrade.isUnauthorized(response, err) || hasOwnCredential(request) {
		return response, err
	}
	r.target.reject(credential)
	if !isRepeatable(request) || r.target.replace(request.Context(), credential) == nil {
		return response, err
	}
	if err == nil {
		// Read to its end, so that the connection is used again.
		_, _ = io.CopyN(io.Discard, response.Body, 64<<10)
		response.Body.Close()
	}
	credential, response, err = r.send(request)
	if credential != nil && r.upgrade.isUnauthorized(response, err) {
		r.target.reject(credential)
	}
	return response, err
}

// send sends a request with the current credential, which it returns.
func (r *roundTripper) send(request *http.Request) (*Credential, *http.Response, error) {
	for {
		if err := r.target.ready(request.Context()); err != nil {
			closeBody(request)
			return nil, nil, err
		}
		if r.lanes == nil {
			return r.pass(request)
		}
		credential, lane := r.lanes.take()
		if credential == nil {
			// It expired or was forgotten between the two lines.
			continue
		}
		response, err := lane.send(withToken(request, credential), r.lanes)
		// The drain limit passed before the answer.
		if err != nil && lane.ended.Load() && isRead(request) && r.target.ctx.Err() == nil && request.Context().Err() == nil {
			continue
		}
		return credential, response, err
	}
}

// pass sends a request through a RoundTripper that is not a transport of client-go, such as the one of an upgrade.
func (r *roundTripper) pass(request *http.Request) (*Credential, *http.Response, error) {
	credential := r.target.current()
	if credential == nil {
		closeBody(request)
		return nil, nil, &NoCredentialError{Err: ErrExpired}
	}
	if !r.upgrade.isReady(credential) {
		closeBody(request)
		return nil, nil, &UnsupportedTransportError{Type: fmt.Sprintf("%T", r.below)}
	}
	response, err := r.below.RoundTrip(withCertificate(withToken(request, credential), credential))
	return credential, response, err
}

// CloseIdleConnections is called by http.Client.
func (r *roundTripper) CloseIdleConnections() {
	if r.lanes != nil {
		r.lanes.closeIdle()
	}
}

// WrappedRoundTripper implements RoundTripperWrapper of apimachinery, with which client-go finds the TLS config.
func (r *roundTripper) WrappedRoundTripper() http.RoundTripper { return r.below }

// withToken returns a copy of the request with the token. A request that has a credential already is sent as it is.
func withToken(request *http.Request, credential *Credential) *http.Request {
	token := credential.Token()
	if token == "" || hasOwnCredential(request) {
		return request
	}
	request = utilnet.CloneRequest(request)
	request.Header.Set("Authorization", "Bearer "+token)
	return request
}

func hasOwnCredential(request *http.Request) bool { return request.Header.Get("Authorization") != "" }

// isRepeatable says whether a request can be sent twice: it has no body.
func isRepeatable(request *http.Request) bool {
	return request.Body == nil || request.Body == http.NoBody
}

// isRead says whether a request changes nothing, so that it can be sent again after an error of its connection.
func isRead(request *http.Request) bool {
	return isRepeatable(request) && (request.Method == http.MethodGet || request.Method == http.MethodHead)
}

// closeBody does what http.RoundTripper demands of errors too.
func closeBody(request *http.Request) {
	if request.Body != nil {
		request.Body.Close()
	}
}
