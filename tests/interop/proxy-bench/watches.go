package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	watched = 1000
	// Watches that are begun at the same time.
	atOnce = 25
	events = 5
	mib    = 1 << 20

	configMaps = "/api/v1/namespaces/watched/configmaps"
)

// What open watches take of a proxy's memory. Each has a process without a past.
func watches(w *world, report *report) error {
	if err := w.create("/api/v1/namespaces", object{"metadata": object{"name": "watched"}}); err != nil {
		return err
	}
	rows := [][]string{{"Way", "Before", "With the watches", "Growth", "Of one watch"}}
	for _, start := range w.proxies() {
		for i := 0; ; i++ {
			proxy, err := start(near)
			if err != nil {
				return err
			}
			if i == len(proxy.ways) {
				proxy.stop()
				break
			}
			before, after, err := w.grow(proxy, proxy.ways[i])
			proxy.stop()
			if err != nil {
				return fmt.Errorf("%s: %w", proxy.ways[i].name, err)
			}
			in := func(bytes float64) string { return fmt.Sprintf("%.1f MiB", bytes/mib) }
			one := fmt.Sprintf("%.1f KiB", (after-before)/watched/1024)
			rows = append(rows, []string{proxy.ways[i].name, in(before), in(after), in(after - before), one})
			if proxy.name == "credbroker" {
				report.limit("watches, "+proxy.ways[i].name+": memory in MiB", after/mib, 64)
			}
		}
	}
	title := fmt.Sprintf("%d watches of ConfigMaps that have read %d events, with kube-apiserver; RssAnon of the proxy:", watched, events)
	report.table(title, rows)
	return nil
}

func (w *world) grow(proxy *proxy, way way) (before, after float64, err error) {
	runtime.GC()
	client := way.connect(near)
	defer client.close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	text, err := client.read(ctx, configMaps)
	if err != nil {
		return 0, 0, err
	}
	var listed struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.Unmarshal(text, &listed); err != nil {
		return 0, 0, err
	}
	path := configMaps + "?watch=true&timeoutSeconds=3000&resourceVersion=" + listed.Metadata.ResourceVersion
	before, err = memory(proxy.process)
	if err != nil {
		return 0, 0, err
	}
	prefix := fmt.Sprintf("event-%d-", time.Now().UnixNano())
	var seen atomic.Int64
	failed := make(chan error, watched)
	begun := make(chan struct{}, watched)
	places := make(chan struct{}, atOnce)
	for range watched {
		go func() {
			places <- struct{}{}
			answer, err := client.get(ctx, path)
			<-places
			if err != nil {
				failed <- err
				return
			}
			begun <- struct{}{}
			defer answer.Body.Close()
			lines := bufio.NewScanner(answer.Body)
			for lines.Scan() {
				if strings.Contains(lines.Text(), prefix) {
					seen.Add(1)
				}
			}
			if ctx.Err() == nil {
				failed <- fmt.Errorf("a watch has ended: %v", lines.Err())
			}
		}()
	}
	deadline := time.After(2 * patience)
	for range watched {
		select {
		case <-begun:
		case err := <-failed:
			return 0, 0, err
		case <-deadline:
			return 0, 0, fmt.Errorf("the watches do not begin")
		}
	}
	for i := range events {
		object := object{"metadata": object{"name": prefix + fmt.Sprint(i)}, "data": object{"key": strings.Repeat("x", 1000)}}
		if err := w.create(configMaps, object); err != nil {
			return 0, 0, err
		}
		for seen.Load() < int64((i+1)*watched) {
			select {
			case err := <-failed:
				return 0, 0, err
			case <-deadline:
				return 0, 0, fmt.Errorf("%d of %d events have arrived", seen.Load(), (i+1)*watched)
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	after, err = memory(proxy.process)
	return before, after, err
}

// Anonymous memory in bytes: pages of the program itself can be dropped and are shared.
func memory(process *process) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", process.command.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), "RssAnon:")
	kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
	return kib * 1024, err
}
