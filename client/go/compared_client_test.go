package credbroker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// runCompared is the other process: an informer, and two loops of requests until its standard input ends.
func runCompared(encoded string) error {
	var of compared
	if err := json.Unmarshal([]byte(encoded), &of); err != nil {
		return err
	}
	config, closeBroker, err := of.config()
	if err != nil {
		return err
	}
	defer closeBroker()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	seen, err := startInformer(ctx, config)
	if err != nil {
		return err
	}
	var requests, failed atomic.Int64
	var loops sync.WaitGroup
	for range 2 {
		loops.Go(func() {
			for ctx.Err() == nil {
				response, err := client.Get(of.Server + "/version")
				requests.Add(1)
				if err != nil || response.StatusCode != http.StatusOK {
					failed.Add(1)
				}
				if err == nil {
					_, _ = io.Copy(io.Discard, response.Body)
					response.Body.Close()
				}
				time.Sleep(2 * time.Millisecond)
			}
		})
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	// For the last events of an informer that has to connect again.
	for range 100 {
		if names, _ := seen.counts(); names == comparedEvents {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	names, twice := seen.counts()
	cancel()
	loops.Wait()
	report := comparedReport{
		Requests: int(requests.Load()), Failed: int(failed.Load()),
		Lists: int(seen.lists.Load()), Events: names, Twice: twice,
	}
	return json.NewEncoder(os.Stdout).Encode(report)
}

func (c compared) config() (*rest.Config, func(), error) {
	base := &rest.Config{Host: c.Server, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: c.CA}}
	if !c.Library {
		base.ExecProvider = &clientcmdapi.ExecConfig{
			Command: c.Exec[0], Args: c.Exec[1:],
			APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		}
		return base, func() {}, nil
	}
	broker, err := New(WithSocket(c.Socket), WithDrain(testDrain))
	if err != nil {
		return nil, nil, err
	}
	config, err := broker.Authenticate(context.Background(), Provider("corp"), base)
	return config, broker.Close, err
}
