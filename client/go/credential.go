package credbroker

import (
	"crypto/tls"
	"fmt"
	"sync/atomic"
	"time"

	pb "github.com/credbroker/credbroker/client/go/credbrokerv1"
	"golang.org/x/net/http/httpguts"
)

// A Credential is a token, a client certificate with its key, or both, and the cluster that it came with. It is immutable:
// a rotation makes a new one, and so does an endpoint that moves. Printing it shows no secret.
type Credential struct {
	generation string
	// Functions, so that no format verb and no dumper of structs reads the secrets.
	token       func() string
	certificate func() *tls.Certificate
	fingerprint string
	cluster     *Cluster
	expiresAt   time.Time
	expiry      *expiry
	lifetime    time.Duration
	// nil, or set when the definition that it comes from is no longer active.
	withdrawn *atomic.Bool
}

// Generation returns the opaque name of the credential. Credentials of the same generation are the same credential.
func (c *Credential) Generation() string { return c.generation }

// Token returns the bearer token, or the empty string if there is none.
func (c *Credential) Token() string {
	if c.token == nil {
		return ""
	}
	return c.token()
}

// Certificate returns the client certificate with its key, or nil if there is none. Do not change it.
func (c *Credential) Certificate() *tls.Certificate {
	if c.certificate == nil {
		return nil
	}
	return c.certificate()
}

// CertificateFingerprint changes if and only if the client certificate or its key does. Empty: no client certificate.
func (c *Credential) CertificateFingerprint() string { return c.fingerprint }

// Cluster returns the cluster that the broker sent with the credential, or nil. For a ClusterProfile: how to reach it. For
// a provider: the cluster that its plugin was run for, if any. Do not change it.
func (c *Credential) Cluster() *Cluster { return c.cluster }

// ExpiresAt returns when the credential expires. Zero: unknown.
func (c *Credential) ExpiresAt() time.Time { return c.expiresAt }

// Lifetime returns the time from when the broker received the credential to its expiry, for callers that choose a margin.
// Zero: unknown.
func (c *Credential) Lifetime() time.Duration { return c.lifetime }

// String returns the generation and what the credential holds.
func (c *Credential) String() string {
	if c == nil {
		return "no credential"
	}
	holds := "token"
	switch {
	case c.token == nil:
		holds = "certificate"
	case c.certificate != nil:
		holds = "token and certificate"
	}
	return fmt.Sprintf("generation %s (%s)", c.generation, holds)
}

// GoString returns the same as String.
func (c *Credential) GoString() string { return "credbroker.Credential(" + c.String() + ")" }

func (c *Credential) isValid(now instant) bool {
	if c.withdrawn != nil && c.withdrawn.Load() {
		return false
	}
	return c.expiry == nil || c.expiry.isAfter(now)
}

// receive checks a message once: a credential that is held can be sent.
func receive(message *pb.Credential, cluster *pb.Cluster, now instant) (*Credential, error) {
	credential := &Credential{
		generation: message.GetGeneration(),
		cluster:    clusterFrom(cluster),
		lifetime:   message.GetLifetime().AsDuration(),
	}
	if token := message.GetToken(); token != "" {
		if !httpguts.ValidHeaderFieldValue(token) {
			return nil, &UnusableError{Problem: "its token does not fit into a header"}
		}
		credential.token = func() string { return token }
	}
	chain, key := message.GetClientCertificateData(), message.GetClientKeyData()
	if (len(chain) == 0) != (len(key) == 0) {
		return nil, &UnusableError{Problem: "it has a certificate or a key without the other"}
	}
	if len(chain) > 0 {
		// The error is left out, because parsers may quote their input.
		pair, err := tls.X509KeyPair(chain, key)
		clear(key)
		if err != nil {
			return nil, &UnusableError{Problem: "its certificate and key are not a valid pair"}
		}
		credential.certificate = func() *tls.Certificate { return &pair }
		credential.fingerprint = message.GetCertificateFingerprint()
	}
	if credential.token == nil && credential.certificate == nil {
		return nil, &UnusableError{Problem: "it has neither a token nor a certificate"}
	}
	if end := message.GetExpirationTime(); end != nil {
		if !end.IsValid() {
			return nil, &UnusableError{Problem: "its expiry is not a valid time"}
		}
		credential.expiresAt = end.AsTime()
		credential.expiry = newExpiry(credential.expiresAt, now)
	}
	return credential, nil
}
