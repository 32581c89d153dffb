// Command clients is a controller with client-go: an informer, and one request for each line that it reads. It reaches its
// cluster as clientcmd does, or by a ClusterProfile as cluster-inventory-api's library does.
//
// usage: clients kubeconfig KUBECONFIG CONTEXT NAMESPACE
//
//	clients access PROVIDERS PROFILE NAMESPACE
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/cluster-inventory-api/pkg/access"
)

// What the driver reads: one line for a request or for an object that the informer saw.
type line struct {
	Status *int   `json:"status,omitempty"`
	Error  string `json:"error,omitempty"`
	Seen   string `json:"seen,omitempty"`
}

func main() {
	if len(os.Args) != 5 {
		fail(errors.New("usage: clients kubeconfig|access FILE NAME NAMESPACE"))
	}
	config, err := reach(os.Args[1], os.Args[2], os.Args[3])
	if err != nil {
		fail(err)
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		fail(err)
	}
	namespace := os.Args[4]
	var writing sync.Mutex
	write := func(what line) {
		writing.Lock()
		defer writing.Unlock()
		if err := json.NewEncoder(os.Stdout).Encode(what); err != nil {
			fail(err)
		}
	}
	follow(client, namespace, func(name string) { write(line{Seen: name}) })
	for commands := bufio.NewScanner(os.Stdin); commands.Scan(); {
		write(get(client, namespace))
	}
}

func reach(way, file, name string) (*rest.Config, error) {
	if way == "kubeconfig" {
		return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
			&clientcmd.ClientConfigLoadingRules{ExplicitPath: file},
			&clientcmd.ConfigOverrides{CurrentContext: name}).ClientConfig()
	}
	providers, err := access.NewFromFile(file)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	profile := &v1alpha1.ClusterProfile{}
	if err := json.Unmarshal(text, profile); err != nil {
		return nil, err
	}
	return providers.BuildConfigFromCP(profile)
}

func follow(client kubernetes.Interface, namespace string, seen func(string)) {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	_, err := factory.Core().V1().ConfigMaps().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { seen(object.(*corev1.ConfigMap).Name) },
	})
	if err != nil {
		fail(err)
	}
	factory.Start(make(chan struct{}))
}

func get(client kubernetes.Interface, namespace string) line {
	limit, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	_, err := client.CoreV1().Namespaces().Get(limit, namespace, metav1.GetOptions{})
	status := 200
	if err == nil {
		return line{Status: &status}
	}
	status = 0
	var answer apierrors.APIStatus
	if errors.As(err, &answer) {
		status = int(answer.Status().Code)
	}
	return line{Status: &status, Error: err.Error()}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
