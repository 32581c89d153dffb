package credbroker

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
)

// A NoEndpointError says that the credential of a provider came without a cluster: only its plugin knows the cluster. Name a
// ClusterProfile, or use [Broker.Authenticate] with the address of the server.
type NoEndpointError struct {
	// What was requested.
	Ref Ref
}

func (e *NoEndpointError) Error() string {
	return fmt.Sprintf("credbroker: the broker names no cluster for %s; name a ClusterProfile, or use Authenticate", e.Ref)
}

// RESTConfig waits for the credential, and returns a config of the cluster that comes with it. ctx limits only this wait.
//
// The config is equal to every other one of this Broker for this Ref, for reflect.DeepEqual and equality.Semantic.DeepEqual,
// until the endpoint of the cluster changes: its server, authorities, TLS server name or proxy. Then RESTConfig returns
// another one; [Broker.RESTConfigs] announces it. A config can be copied and changed, for example its QPS, UserAgent,
// Impersonate or Timeout. It works in this process only, until [Broker.Forget] or [Broker.Close].
//
// Clients of the config
//
//   - send the current token with each request, and use the current certificate for new connections. When the certificate
//     changes, no old connection takes another request. Watches on it end within the drain limit, as if the server had ended
//     them, so that informers continue where they are;
//   - send the credential only to the endpoint that it came with. After the endpoint has moved they use the last credential
//     of the old one until it expires, and then fail with [MovedError];
//   - report a 401 response, and send a request without a body once more if that brings another credential;
//   - use no credential of a provider's earlier definition after the broker has reported its change;
//   - wait up to ten seconds for a credential if there is no valid one, and then fail with [NoCredentialError].
//
// exec, attach and port-forward get the credential that is current when they begin, and go on until their own end.
//
// A config with a WrapTransport works with tokens. With a client certificate or a proxy of the cluster, see
// [UnsupportedTransportError].
func (b *Broker) RESTConfig(ctx context.Context, ref Ref) (*rest.Config, error) {
	return b.configSource(ref).RESTConfig(ctx)
}

// RESTConfig is [Broker.RESTConfig], and its clients work until the last Source with an equal Ref is closed.
func (s *Source) RESTConfig(ctx context.Context) (*rest.Config, error) {
	credential, err := s.Ready(ctx)
	if err != nil {
		return nil, err
	}
	return s.configOf(credential)
}

// Authenticate waits for the credential, and returns a copy of base that sends it: for providers, whose credential comes
// without a cluster. The credential goes only to the server of base; one that comes with another server fails with
// [OtherServerError]. Authorities, TLS server name and proxy are those of base. base must have no credential.
//
// The CAFile of base is read once for each call. For other authorities in it, call Authenticate again.
func (b *Broker) Authenticate(ctx context.Context, ref Ref, base *rest.Config) (*rest.Config, error) {
	return b.configSource(ref).Authenticate(ctx, base)
}

// Authenticate is [Broker.Authenticate], and its clients work until the last Source with an equal Ref is closed.
func (s *Source) Authenticate(ctx context.Context, base *rest.Config) (*rest.Config, error) {
	if what := ownCredential(base); what != "" {
		return nil, fmt.Errorf("credbroker: the config already has a credential (%s); remove it", what)
	}
	to, err := parseServer(withScheme(base))
	if err != nil {
		return nil, err
	}
	credential, err := s.Ready(ctx)
	if err != nil {
		return nil, err
	}
	if cluster := credential.cluster; cluster != nil {
		named, err := parseServer(cluster.Server)
		if err != nil {
			return nil, err
		}
		if named != to {
			return nil, &OtherServerError{Request: to.String(), Credential: named.String()}
		}
	}
	config := rest.CopyConfig(base)
	config.Host = withScheme(base)
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, fmt.Errorf("credbroker: the authorities of the config cannot be read: %w", err)
	}
	// client-go reads it again in a transport that this package replaces.
	config.CAFile = ""
	return s.targetOf(credential, to, nil, true).configure(config, credential)
}

func (s *Source) configOf(credential *Credential) (*rest.Config, error) {
	cluster := credential.cluster
	if cluster == nil {
		return nil, &NoEndpointError{Ref: s.Ref()}
	}
	to, err := parseServer(cluster.Server)
	if err != nil {
		return nil, err
	}
	if cluster.InsecureSkipTLSVerify && len(cluster.CertificateAuthorityData) > 0 {
		return nil, &UnusableError{Problem: "the cluster has certificate authorities, and does not verify them"}
	}
	var proxy *url.URL
	if text := cluster.ProxyURL(); text != "" {
		// The error is left out, because it quotes the URL, which may have a password.
		if proxy, err = url.Parse(text); err != nil || proxy.Host == "" || !slices.Contains(proxySchemes, proxy.Scheme) {
			return nil, &UnusableError{Problem: "the cluster's proxy is not a valid URL; use http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT"}
		}
	}
	return s.targetOf(credential, to, proxy, false).configure(&rest.Config{
		Host:               cluster.Server,
		DisableCompression: cluster.DisableCompression,
		TLSClientConfig: rest.TLSClientConfig{
			Insecure:   cluster.InsecureSkipTLSVerify,
			ServerName: cluster.TLSServerName,
			CAData:     append([]byte(nil), cluster.CertificateAuthorityData...),
		},
	}, credential)
}

var proxySchemes = []string{"http", "https", "socks5", "socks5h"}

// targetOf returns the one target for the endpoint that credential came with. One of Authenticate is another target, because
// its connections have another proxy, and so is one with another drain limit.
func (s *Source) targetOf(credential *Credential, to destination, proxy *url.URL, authenticated bool) *target {
	from := s.followed
	from.shared.mu.Lock()
	defer from.shared.mu.Unlock()
	for _, known := range from.targets {
		if known.to == to && known.authenticated == authenticated && known.drain == s.broker.drain && known.covers(credential) {
			return known
		}
	}
	from.targets = slices.DeleteFunc(from.targets, (*target).retire)
	found := newTarget(from, credential, to, proxy, authenticated, s.broker.drain)
	if from.users > 0 {
		from.targets = append(from.targets, found)
	} else {
		found.forget()
	}
	return found
}

// ownCredential returns the first credential that a config has. Impersonation is not one: it applies to any user.
func ownCredential(config *rest.Config) string {
	switch {
	case config.Username != "" || config.Password != "":
		return "a user name and password"
	case config.BearerToken != "" || config.BearerTokenFile != "":
		return "a token"
	case len(config.CertData) > 0 || config.CertFile != "" || len(config.KeyData) > 0 || config.KeyFile != "":
		return "a client certificate"
	case config.AuthProvider != nil:
		return "an auth provider"
	case config.ExecProvider != nil:
		return "an exec plugin"
	}
	return ""
}

// withScheme completes a Host without a scheme as client-go does for a config with TLS.
func withScheme(config *rest.Config) string {
	if strings.Contains(config.Host, "://") {
		return config.Host
	}
	return "https://" + config.Host
}
