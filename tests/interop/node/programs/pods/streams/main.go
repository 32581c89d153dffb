// Command streams opens streams of a pod with client/go: exec, attach and port-forward, over SPDY and over WebSocket, for each
// of some ClusterProfiles. The pod is itself, too.
//
// usage: streams serve                          in the pod: sends back what comes to its port, and its input
// usage: streams echo                           in the pod: sends back its input
// usage: streams client NAMESPACE PROFILE...    prints a line for each stream, and fails if one does
//
// A ClusterProfile whose name ends with -proxy must name the proxy that the client starts at proxyAddress.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"strings"
	"time"

	credbroker "github.com/credbroker/credbroker/client/go"
)

const port = 8080

func main() {
	log.SetFlags(0)
	var err error
	switch {
	case len(os.Args) == 2 && os.Args[1] == "serve":
		go echoInput()
		err = serve()
	case len(os.Args) == 2 && os.Args[1] == "echo":
		err = echoInput()
	case len(os.Args) > 3 && os.Args[1] == "client":
		err = openAll(os.Args[2], os.Args[3:])
	default:
		err = fmt.Errorf("usage: streams serve | streams echo | streams client NAMESPACE PROFILE...")
	}
	if err != nil {
		log.Fatal(err)
	}
}

func echoInput() error {
	_, err := io.Copy(os.Stdout, os.Stdin)
	return err
}

// serve sends back what comes to the port.
func serve() error {
	listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return err
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			_, _ = io.Copy(conn, conn)
		}()
	}
}

func openAll(namespace string, profiles []string) error {
	broker, err := credbroker.Default()
	if err != nil {
		return err
	}
	proxy, err := startProxy()
	if err != nil {
		return err
	}
	failed := 0
	for _, profile := range profiles {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		config, err := broker.RESTConfig(ctx, credbroker.ClusterProfile(namespace, profile))
		if err != nil {
			return err
		}
		for _, action := range []string{"exec", "attach", "portforward"} {
			for _, protocol := range []string{"SPDY", "WebSocket"} {
				before := proxy.Load()
				err := open(ctx, config, action, protocol == "WebSocket")
				if through := proxy.Load() > before; err == nil && through != strings.HasSuffix(profile, "-proxy") {
					err = fmt.Errorf("through the proxy: %v", through)
				}
				if err != nil {
					failed++
					log.Printf("%s, %s over %s: %v", profile, action, protocol, err)
				} else {
					fmt.Printf("%s, %s over %s\n", profile, action, protocol)
				}
			}
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d streams failed", failed)
	}
	return nil
}
