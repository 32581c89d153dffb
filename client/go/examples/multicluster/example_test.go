package multicluster_test

import (
	"log"

	credbroker "github.com/credbroker/credbroker/client/go"
	"github.com/credbroker/credbroker/client/go/examples/multicluster"
	"k8s.io/client-go/rest"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
)

func Example() {
	var hub *rest.Config // of the program
	broker, err := credbroker.Default()
	if err != nil {
		log.Fatal(err)
	}
	manager, err := mcmanager.New(hub, multicluster.New(broker, "fleet"), mcmanager.Options{})
	if err != nil {
		log.Fatal(err)
	}
	_ = manager // Add controllers, then start it.
}
