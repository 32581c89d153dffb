package credbroker

import (
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	// The name of the auth provider plugin that this package registers with client-go. It is how a config that holds only
	// strings leads to a RoundTripper that follows the broker.
	pluginName = "credbroker.io/client-go"
	// The key of its config: the name of a target of this process.
	pluginKey = "credential"
)

// The targets of this process by their names.
var (
	registry sync.Map
	targets  atomic.Uint64
)

func init() {
	if err := rest.RegisterAuthProviderPlugin(pluginName, authProviderOf); err != nil {
		panic(err)
	}
}

func authProviderOf(host string, config map[string]string, _ rest.AuthProviderConfigPersister) (rest.AuthProvider, error) {
	found, ok := registry.Load(config[pluginKey])
	if !ok {
		return nil, fmt.Errorf("credbroker: the config is of another process, or of a credential that was forgotten: %w", ErrClosed)
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

func (t *target) configure(config *rest.Config) *rest.Config {
	config.AuthProvider = &clientcmdapi.AuthProviderConfig{Name: pluginName, Config: map[string]string{pluginKey: t.name}}
	return config
}
