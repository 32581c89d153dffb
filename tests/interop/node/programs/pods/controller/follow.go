package main

import (
	"context"
	"log"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// follow counts the events of the counter with an informer.
func follow(ctx context.Context, client kubernetes.Interface, counts *counts) {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) {
			options.FieldSelector = fields.OneTermEqualSelector("metadata.name", counter).String()
		}))
	informer := factory.Core().V1().ConfigMaps().Informer()
	seen := func(object any) {
		number, err := strconv.Atoi(object.(*corev1.ConfigMap).Data["number"])
		if err != nil {
			log.Fatal(err)
		}
		counts.event(number)
	}
	handler := cache.ResourceEventHandlerFuncs{AddFunc: seen, UpdateFunc: func(_, object any) { seen(object) }}
	if _, err := informer.AddEventHandler(handler); err != nil {
		log.Fatal(err)
	}
	informer.Run(ctx.Done())
}
