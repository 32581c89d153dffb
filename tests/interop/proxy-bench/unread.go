package main

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"time"
)

const (
	unreadStreams = 3
	blocks        = 40
	// Requests of a block with 100 rounds: ten of them are above the 99th percentile, so that one busy moment does not decide.
	inBlock = 1000
	logPath = "/api/v1/namespaces/default/pods/chatty/log?follow=true"
)

// What streams that are not read do to other requests. There are two processes of each proxy, one with streams and one
// without, and each request to one is followed by a request to the other, so that a busy moment is one for both.
func unread(w *world, report *report) error {
	rows := [][]string{{"Way", "p50 without", "p50 with", "p99 without", "p99 with", "Ratio of p99, median"}}
	measure := func(name string, of [2]way, own bool, limited bool) error {
		if !own {
			name += ", streams on the same connection"
		}
		with, without, ratio, err := w.beside(of, own)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		p50 := []time.Duration{quantile(without, 0.5), quantile(with, 0.5)}
		p99 := []time.Duration{quantile(without, 0.99), quantile(with, 0.99)}
		if limited {
			report.limit("unread, "+name+": ratio of p99", ratio, 1.1)
		}
		rows = append(rows, []string{name, ms(p50[0]), ms(p50[1]), ms(p99[0]), ms(p99[1]), fmt.Sprintf("%.2f", ratio)})
		return nil
	}
	direct := w.direct(1)
	if err := measure(direct.name, [2]way{direct, direct}, true, false); err != nil {
		return err
	}
	// kubeconfig-proxy has one fixed port, so there cannot be two. It consists of the code of `kubectl proxy`.
	for _, start := range []func(...string) (*proxy, error){w.credbroker, w.reverseProxy, w.kubectlProxy} {
		var pair [2]*proxy
		for i := range pair {
			proxy, err := start(bare)
			if err != nil {
				return err
			}
			defer proxy.stop()
			pair[i] = proxy
		}
		for i, first := range pair[0].ways {
			for _, own := range []bool{true, false}[:first.version] {
				of := [2]way{first, pair[1].ways[i]}
				if err := measure(first.name, of, own, pair[0].name == "credbroker"); err != nil {
					return err
				}
			}
		}
	}
	title := fmt.Sprintf("%d requests in turn to a process with %d logs that are not read and to one without, with the server without work:",
		w.rounds*inBlock/100*blocks, unreadStreams)
	report.table(title, rows)
	return nil
}

// The times of requests to a process with streams, and to one without. The streams have separate connections, or that of the
// requests.
func (w *world) beside(pair [2]way, own bool) (with, without []time.Duration, ratio float64, err error) {
	var ratios []float64
	for range blocks {
		times, err := w.block(pair, own)
		if err != nil {
			return nil, nil, 0, err
		}
		with, without = append(with, times[0]...), append(without, times[1]...)
		ratios = append(ratios, float64(quantile(times[0], 0.99))/float64(quantile(times[1], 0.99)))
		pair[0], pair[1] = pair[1], pair[0]
	}
	return with, without, median(ratios), nil
}

func (w *world) block(pair [2]way, own bool) (times [2][]time.Duration, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	clients := [2]client{pair[0].connect(bare), pair[1].connect(bare)}
	for _, client := range clients {
		defer client.close()
	}
	for range unreadStreams {
		client := clients[0]
		if own {
			client = pair[0].connect(bare)
			defer client.close()
		}
		answer, err := client.get(ctx, logPath)
		if err != nil {
			return times, err
		}
		defer answer.Body.Close()
	}
	if err := w.streamsHaveStopped(); err != nil {
		return times, err
	}
	runtime.GC()
	count := w.rounds * inBlock / 100
	for request := range count + count/10 {
		for turn := range clients {
			i := (turn + request) % 2
			began := time.Now()
			if _, err := clients[i].read(ctx, "/version"); err != nil {
				return times, err
			}
			if request >= count/10 {
				times[i] = append(times[i], time.Since(began))
			}
		}
	}
	return times, nil
}

// Waits until the server can write nothing more.
func (w *world) streamsHaveStopped() error {
	observer := w.direct(1).connect(bare)
	defer observer.close()
	began := time.Now()
	for before, same := int64(-1), 0; same < 3; time.Sleep(20 * time.Millisecond) {
		text, err := observer.read(context.Background(), "/written")
		if err != nil {
			return err
		}
		written, err := strconv.ParseInt(string(text), 10, 64)
		if err != nil {
			return err
		}
		same++
		if written != before {
			before, same = written, 0
		}
		if time.Since(began) > patience {
			return fmt.Errorf("the server still writes to streams that are not read")
		}
	}
	return nil
}
