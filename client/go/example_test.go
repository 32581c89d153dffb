package credbroker_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	credbroker "github.com/credbroker/credbroker/client/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

func Example() {
	if err := countPods(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func countPods(ctx context.Context) error {
	config, err := credbroker.RESTConfig(ctx, credbroker.ClusterProfile("fleet", "paris"))
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	pods, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	fmt.Println(len(pods.Items), "pods")
	return nil
}

func ExampleRef() {
	ref := credbroker.ClusterProfile("fleet", "paris").WithEnv("AWS_PROFILE", "production")
	fmt.Println(ref)
	fmt.Printf("%#v\n", ref)
	// Output:
	// clusterprofile/fleet/paris
	// credbroker.Ref(clusterprofile/fleet/paris)
}

func ExampleError() {
	err := fmt.Errorf("connecting: %w", &credbroker.Error{
		Reason: credbroker.ReasonIssuerThrottled, Message: "the issuer asked for fewer requests", RetryAfter: 7 * time.Second,
	})
	var failed *credbroker.Error
	if errors.As(err, &failed) {
		fmt.Println(failed.Reason, failed.RetryAfter)
	}
	fmt.Println(err)
	// Output:
	// ISSUER_THROTTLED 7s
	// connecting: credbroker: the issuer asked for fewer requests
}

func ExampleReasonOf() {
	_, err := credbroker.RESTConfig(context.Background(), credbroker.ClusterProfile("fleet", "paris"))
	switch credbroker.ReasonOf(err) {
	case credbroker.ReasonInteractionRequired: // log in, then try again
	case credbroker.ReasonUnknownClusterProfile: // check the name
	}
	var untrusted *credbroker.UntrustedError
	if errors.As(err, &untrusted) {
		log.Fatal(err)
	}
}

func ExampleBroker_RESTConfigs() {
	ctx := context.Background()
	broker, err := credbroker.New(credbroker.WithDrain(10 * time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer broker.Close()
	for change := range broker.RESTConfigs(ctx, credbroker.ClusterProfile("fleet", "paris")) {
		if change.Err != nil {
			log.Print("no config: ", change.Err)
			continue
		}
		fmt.Println("clients now use", change.Config.Host)
	}
}

func ExampleBroker_Authenticate() {
	ctx := context.Background()
	broker, err := credbroker.Default()
	if err != nil {
		log.Fatal(err)
	}
	base := &rest.Config{Host: "https://paris.example:6443", TLSClientConfig: rest.TLSClientConfig{CAFile: "/etc/paris/ca.crt"}}
	config, err := broker.Authenticate(ctx, credbroker.Provider("eks"), base)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(config.Host)
}

func ExampleBroker_Authenticate_base() {
	if config, err := authenticated("fleet", "paris", &rest.Config{Host: "https://paris.example:6443"}); err == nil {
		fmt.Println(config.Host)
	}
}

// As RawRestConfig of Argo CD, which has no context.
func authenticated(namespace, name string, config *rest.Config) (*rest.Config, error) {
	broker, err := credbroker.Default()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return broker.Authenticate(ctx, credbroker.ClusterProfile(namespace, name), config)
}

func ExampleClusters() {
	broker, err := credbroker.Default()
	if err != nil {
		log.Fatal(err)
	}
	clusters := broker.Clusters("fleet")
	defer clusters.Close()
	for event := range clusters.Events(context.Background()) {
		fmt.Println(event.Type, event.Cluster)
		if event.Type == credbroker.ClusterRemoved {
			broker.Forget(event.Cluster.Ref())
		}
	}
}

func ExampleBroker_Source() {
	ctx := context.Background()
	broker, err := credbroker.Default()
	if err != nil {
		log.Fatal(err)
	}
	source := broker.Source(credbroker.ClusterProfile("fleet", "paris"))
	defer source.Close()
	config, err := source.RESTConfig(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("until Close, clients can use", config.Host)
}
