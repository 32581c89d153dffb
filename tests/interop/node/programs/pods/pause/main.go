// Command pause holds the namespaces of a pod: it waits for a signal, and reaps orphans.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// The kernel reaps the children of a process that ignores this signal.
	signal.Ignore(syscall.SIGCHLD)
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	<-stop
}
