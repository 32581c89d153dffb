package credbroker

import (
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// What newAuthInfo of Argo CD does for a config without a certificate, and with the lines of docs/go.md.
func newAuthInfo(restConfig *rest.Config, serviceAccountToken string) *clientcmdapi.AuthInfo {
	authInfo := clientcmdapi.AuthInfo{}
	haveCredentials := false
	if restConfig.BearerToken != "" {
		authInfo.Token = restConfig.BearerToken
		haveCredentials = true
	}
	if restConfig.ExecProvider != nil {
		authInfo.Exec = restConfig.ExecProvider
		haveCredentials = true
	}
	if restConfig.AuthProvider != nil {
		authInfo.AuthProvider = restConfig.AuthProvider
		haveCredentials = true
	}
	if restConfig.ExecProvider == nil && !haveCredentials {
		authInfo.TokenFile = serviceAccountToken
	}
	return &authInfo
}

// As ManageResources of Argo CD does it to sync: it writes a kubeconfig, which kubectl reads in the same process.
func TestAKubeconfigOfTheConfigLeadsToTheCredentialOfTheBroker(t *testing.T) {
	f := newFleet(t, false)
	serviceAccountToken := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(serviceAccountToken, []byte("service-account"), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := f.broker.Authenticate(patient(t), parisRef, f.base())
	if err != nil {
		t.Fatal(err)
	}
	written := clientcmdapi.Config{
		CurrentContext: config.Host,
		Contexts:       map[string]*clientcmdapi.Context{config.Host: {Cluster: config.Host, AuthInfo: config.Host}},
		Clusters:       map[string]*clientcmdapi.Cluster{config.Host: {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{config.Host: newAuthInfo(config, serviceAccountToken)},
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(written, kubeconfig); err != nil {
		t.Fatal(err)
	}
	read, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if read.BearerToken != "" || read.BearerTokenFile != "" || !reflect.DeepEqual(read.AuthProvider, config.AuthProvider) {
		t.Error("the kubeconfig has another credential")
	}
	f.server.AcceptToken("token-2")
	f.rotate(t, token("2"))
	if status := get(t, clientOf(t, read), f.server.URL+"/version"); status != http.StatusOK {
		t.Error(status)
	}
	if seen := f.server.Identities(); !reflect.DeepEqual(seen, []string{"token-2"}) {
		t.Errorf("%v was sent", seen)
	}
}
