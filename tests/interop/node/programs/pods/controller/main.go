// Command controller is a client of an API server as controllers are: an informer, and requests at a steady rate. At SIGTERM it
// goes on for a while, as a controller that finishes its work does, and prints what it counted. It fails if a request failed or
// an event was lost.
//
// The environment has the name of the way to the credential in VIA: `broker` (client/go), `kubeconfig` (a context of a file),
// `shim` (client-go's exec stanza), or `command` (one run of the shim for each request, as of kubectl). PROFILE is the
// ClusterProfile NAMESPACE/NAME of `broker`; KUBECONFIG and CONTEXT are of `kubeconfig`; SERVER and CA are the cluster of the
// others, and EXEC their exec stanza. INTERVAL is the time between two requests.
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// Where the events are; see ../../events.sh.
	namespace, counter = "events", "counter"
	// Between two requests, unless INTERVAL says something else.
	defaultInterval = 200 * time.Millisecond
	// How long one request may take.
	limit = 15 * time.Second
	// How long it works after SIGTERM.
	linger = 3 * time.Second
)

func main() {
	log.SetFlags(log.Ltime | log.Lmicroseconds)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	counts := &counts{Via: os.Getenv("VIA")}
	clients, err := connect(counts)
	if err != nil {
		log.Fatal(err)
	}
	if counts.Via != "command" {
		client, err := clients()
		if err != nil {
			log.Fatal(err)
		}
		go follow(context.Background(), client, counts)
	}
	interval := defaultInterval
	if text := os.Getenv("INTERVAL"); text != "" {
		if interval, err = time.ParseDuration(text); err != nil {
			log.Fatal(err)
		}
	}
	work(ctx, interval, clients, counts)
	report, err := json.Marshal(counts.read())
	if err != nil {
		log.Fatal(err)
	}
	log.SetFlags(0)
	log.Printf("%s", report)
	if counts.hasLost() {
		os.Exit(1)
	}
}

// work sends requests until some time after ctx has ended.
func work(ctx context.Context, interval time.Duration, clients clients, counts *counts) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var end <-chan time.Time
	stopped := ctx.Done()
	for {
		counts.request(get(clients))
		select {
		case <-tick.C:
		case <-stopped:
			end, stopped = time.After(linger), nil
		case <-end:
			return
		}
	}
}

func get(clients clients) error {
	client, err := clients()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	_, err = client.CoreV1().ConfigMaps(namespace).Get(ctx, counter, metav1.GetOptions{})
	return err
}
