package kueue

import (
	"context"
	"errors"
	"testing"
	"time"

	credbroker "github.com/credbroker/credbroker/client/go"
	pb "github.com/credbroker/credbroker/client/go/credbrokerv1"
	"github.com/credbroker/credbroker/client/go/internal/fake"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/cluster-inventory-api/pkg/access"
)

// As in Kueue 0.19.
type clusterProfileAccessProvider interface {
	BuildConfigFromCP(*v1alpha1.ClusterProfile) (*rest.Config, error)
}

var (
	_ clusterProfileAccessProvider = AccessProvider{}
	_ clusterProfileAccessProvider = (*access.Config)(nil)
)

// What Kueue compares.
type clientConfig struct{ RestConfig *rest.Config }

// The condition of Kueue on AuthProvider, with its exception.
func validateRestConfig(restConfig *rest.Config) error {
	if restConfig.AuthProvider != nil && restConfig.AuthProvider.Name != credbroker.AuthProviderName {
		return errors.New("auth providers are not allowed")
	}
	return nil
}

func TestMultiKueueSeesAChangeOnlyWhenTheClusterMoves(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	fakeBroker := fake.NewBroker(t)
	set := func(generation, server string) {
		credential := &pb.Credential{Generation: generation, Token: &generation}
		fakeBroker.Set("clusterprofile/kueue-system/paris", credential, &pb.Cluster{Server: server})
	}
	set("1", "https://paris.example:6443")
	broker, err := credbroker.New(credbroker.WithSocket(fakeBroker.Socket))
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	profile := &v1alpha1.ClusterProfile{}
	profile.Namespace, profile.Name = "kueue-system", "paris"
	config := func() *clientConfig {
		t.Helper()
		config, err := AccessProvider{broker}.BuildConfigFromCP(profile)
		if err != nil {
			t.Fatal(err)
		}
		if err := validateRestConfig(config); err != nil {
			t.Error(err)
		}
		return &clientConfig{config}
	}
	await := func(generation string) {
		for credential := range broker.Source(credbroker.ClusterProfile("kueue-system", "paris")).Changes(ctx) {
			if credential.Generation() == generation {
				return
			}
		}
	}
	first := config()
	set("2", "https://paris.example:6443")
	await("2")
	if !equality.Semantic.DeepEqual(first, config()) {
		t.Error("a rotation would make another client")
	}
	set("3", "https://lyon.example:6443")
	await("3")
	if equality.Semantic.DeepEqual(first, config()) {
		t.Error("the cluster moved without a change")
	}
	if validateRestConfig(&rest.Config{AuthProvider: &clientcmdapi.AuthProviderConfig{Name: "oidc"}}) == nil {
		t.Error("another auth provider is allowed")
	}
}
