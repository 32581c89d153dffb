package credbroker

import (
	"fmt"
	"net/http"
	"net/url"
	"sync"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// AuthProviderName is the name of the auth provider plugin that this package registers with client-go, and so the Name in
// the AuthProvider of its configs. It is how a config that holds only strings leads to a RoundTripper that follows the
// broker. Programs that refuse configs with other auth providers compare it.
const AuthProviderName = "credbroker.io/client-go"

// The key of its config: the name of a target of this process.
const pluginKey = "credential"

// The targets of this process by their names. A name cannot be guessed, so that no kubeconfig from elsewhere gets the
// credential of another config.
var registry sync.Map

func init() {
	if err := rest.RegisterAuthProviderPlugin(AuthProviderName, authProviderOf); err != nil {
		panic(err)
	}
}

func authProviderOf(host string, config map[string]string, _ rest.AuthProviderConfigPersister) (rest.AuthProvider, error) {
	found, ok := registry.Load(config[pluginKey])
	if !ok {
		return nil, fmt.Errorf("credbroker: the config is of another process, of an endpoint that the cluster has left, or of a credential that was forgotten: %w", ErrClosed)
	}
	to := found.(*target)
	if server, err := url.Parse(host); err != nil || destinationOf(server) != to.to {
		return nil, fmt.Errorf("credbroker: the config has another Host than %s, which its credential is for; use Authenticate for another address", to.to)
	}
	return authProvider{to}, nil
}

type authProvider struct{ *target }

// WrapTransport is called for each client that is made of a config.
func (a authProvider) WrapTransport(below http.RoundTripper) http.RoundTripper {
	return a.roundTripper(below)
}

// Login does nothing: the broker logs in.
func (authProvider) Login() error { return nil }

// configure adds what leads to the target, and fails if clients of the config could not use the credential.
func (t *target) configure(config *rest.Config, credential *Credential) (*rest.Config, error) {
	below, err := rest.TransportFor(config)
	if err != nil {
		return nil, &UnusableError{Problem: "client-go makes no transport of the config: " + err.Error()}
	}
	if t.needsConnections(credential) && replaceable(below) == nil {
		return nil, &UnsupportedTransportError{Type: fmt.Sprintf("%T", below)}
	}
	config.AuthProvider = &clientcmdapi.AuthProviderConfig{Name: AuthProviderName, Config: map[string]string{pluginKey: t.name}}
	return config, nil
}
