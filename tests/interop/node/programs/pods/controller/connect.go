package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	credbroker "github.com/credbroker/credbroker/client/go"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// clients returns the client for the next request.
type clients func() (*kubernetes.Clientset, error)

func connect(counts *counts) (clients, error) {
	direct := &rest.Config{
		Host:            os.Getenv("SERVER"),
		TLSClientConfig: rest.TLSClientConfig{CAData: []byte(os.Getenv("CA"))},
	}
	switch counts.Via {
	case "broker":
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		namespace, name, _ := strings.Cut(os.Getenv("PROFILE"), "/")
		config, err := credbroker.RESTConfig(ctx, credbroker.ClusterProfile(namespace, name))
		if err != nil {
			return nil, err
		}
		return one(config, counts)
	case "kubeconfig":
		config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
			clientcmd.NewDefaultClientConfigLoadingRules(),
			&clientcmd.ConfigOverrides{CurrentContext: os.Getenv("CONTEXT")}).ClientConfig()
		if err != nil {
			return nil, err
		}
		return one(config, counts)
	case "shim":
		config := rest.CopyConfig(direct)
		var err error
		if config.ExecProvider, err = stanza(); err != nil {
			return nil, err
		}
		return one(config, counts)
	case "command":
		stanza, err := stanza()
		if err != nil {
			return nil, err
		}
		return func() (*kubernetes.Clientset, error) {
			token, err := run(stanza, direct)
			if err != nil {
				return nil, err
			}
			config := rest.CopyConfig(direct)
			config.BearerToken = token
			return kubernetes.NewForConfig(config)
		}, nil
	}
	return nil, fmt.Errorf("VIA is %q: it must be one of broker, kubeconfig, shim, command", counts.Via)
}

// one is a client for all requests, whose answers are counted.
func one(config *rest.Config, counts *counts) (clients, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.Wrap(func(below http.RoundTripper) http.RoundTripper { return &counting{below, counts} })
	client, err := kubernetes.NewForConfig(config)
	return func() (*kubernetes.Clientset, error) { return client, nil }, err
}

// stanza is EXEC: an exec stanza in JSON, or the configuration of a cluster of Argo CD, which has one.
func stanza() (*clientcmdapi.ExecConfig, error) {
	var text struct {
		clientcmdapi.ExecConfig
		Cluster *clientcmdapi.ExecConfig `json:"execProviderConfig"`
	}
	if err := json.Unmarshal([]byte(os.Getenv("EXEC")), &text); err != nil {
		return nil, fmt.Errorf("EXEC: %w", err)
	}
	stanza := &text.ExecConfig
	if text.Cluster != nil {
		stanza = text.Cluster
	}
	stanza.InteractiveMode = clientcmdapi.NeverExecInteractiveMode
	return stanza, nil
}

// run gets a token as kubectl does: by one run of the shim.
func run(stanza *clientcmdapi.ExecConfig, cluster *rest.Config) (string, error) {
	spec := map[string]any{"interactive": false}
	if stanza.ProvideClusterInfo {
		spec["cluster"] = map[string]any{"server": cluster.Host, "certificate-authority-data": cluster.CAData}
	}
	info, err := json.Marshal(map[string]any{"apiVersion": stanza.APIVersion, "kind": "ExecCredential", "spec": spec})
	if err != nil {
		return "", err
	}
	command := exec.Command(stanza.Command, stanza.Args...)
	command.Env = append(os.Environ(), "KUBERNETES_EXEC_INFO="+string(info))
	var stderr strings.Builder
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("the shim: %w: %s", err, stderr.String())
	}
	var credential struct {
		Status struct {
			Token string `json:"token"`
		} `json:"status"`
	}
	if err := json.Unmarshal(output, &credential); err != nil {
		return "", err
	}
	return credential.Status.Token, nil
}
