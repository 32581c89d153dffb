// Measures `credbroker proxy`, compared with other ways to an API server, all in one run: run.sh starts it and docs/proxy.md has the figures.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"runtime/debug"
	"slices"
)

var sections = []struct {
	name    string
	measure func(*world, *report) error
}{
	{"latency", latency},
	{"kubectl", kubectl},
	{"watches", watches},
	{"unread", unread},
}

func main() {
	log.SetFlags(0)
	// Garbage is collected between measurements.
	debug.SetGCPercent(-1)
	if len(os.Args) > 1 && serve(os.Args[1], os.Args[2:]) {
		return
	}
	var programs programs
	var rounds int
	var results string
	flag.StringVar(&programs.plane, "plane", "", "the directory of controlplane/start.sh")
	flag.StringVar(&programs.kubectl, "kubectl", "", "kubectl")
	flag.StringVar(&programs.broker, "broker", "", "credbroker")
	flag.StringVar(&programs.shim, "shim", "", "credbroker-exec")
	flag.StringVar(&programs.kubeconfigProxy, "kubeconfig-proxy", "", "kubeconfig-proxy; without it, it is left out")
	flag.IntVar(&rounds, "rounds", 100, "a higher number takes longer, and is more exact")
	flag.StringVar(&results, "results", "", "a file for the tables and the bars of the plot, as JSON")
	flag.Parse()

	world, err := newWorld(programs, rounds)
	if err != nil {
		log.Fatal(err)
	}
	report := &report{}
	for _, section := range sections {
		if flag.NArg() == 0 || slices.Contains(flag.Args(), section.name) {
			if err = section.measure(world, report); err != nil {
				err = fmt.Errorf("%s: %w", section.name, err)
				break
			}
		}
	}
	world.end()
	if err != nil {
		log.Fatal(err)
	}
	if results != "" {
		text, _ := json.Marshal(report)
		if err := os.WriteFile(results, text, 0o644); err != nil {
			log.Fatal(err)
		}
	}
	if len(report.Missed) > 0 {
		log.Fatalf("missed: %q", report.Missed)
	}
}
