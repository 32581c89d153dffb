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
		state, known := clusters.Get(controllerruntime.NameOf(request))
		if !known {
			fmt.Println("gone:", request.NamespacedName)
			broker.Forget(controllerruntime.NameOf(request).Ref())
			return reconcile.Result{}, nil
		}
		config, err := broker.RESTConfig(ctx, state.Ref())
		if err != nil {
			return reconcile.Result{}, err
		}
		fmt.Println("now", state, config.Host)
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
