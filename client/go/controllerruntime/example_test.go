package controllerruntime_test

import (
	"context"
	"fmt"
	"log"

	credbroker "github.com/credbroker/credbroker/client/go"
	"github.com/credbroker/credbroker/client/go/controllerruntime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func ExampleSource() {
	var manager manager.Manager // of the program
	broker, err := credbroker.Default()
	if err != nil {
		log.Fatal(err)
	}
	clusters := broker.Clusters("fleet")
	reconciler := reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		name := credbroker.ClusterName{Namespace: request.Namespace, Name: request.Name}
		fmt.Println("now", clusters.Get(name))
		return reconcile.Result{}, nil
	})
	err = builder.ControllerManagedBy(manager).
		Named("clusters").
		WatchesRawSource(controllerruntime.Source(clusters)).
		Complete(reconciler)
	if err != nil {
		log.Fatal(err)
	}
}
