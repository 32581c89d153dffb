package main

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

const (
	unreadStreams = 3
	// Requests between a change: with streams, without.
	block = 100
	// An answer that takes longer has failed.
	tooLong = 2 * time.Second
	logPath = "/api/v1/namespaces/default/pods/chatty/log?follow=true"
)

// What streams that nobody reads do to other requests.
func unread(w *world, report *report) error {
	proxies, err := w.all(bare)
	if err != nil {
		return err
	}
	ways := []way{w.direct(1), w.direct(2)}
	limited := map[string]bool{}
	for _, proxy := range proxies {
		defer proxy.stop()
		for _, way := range proxy.ways {
			limited[way.name] = proxy.name == "credbroker"
			ways = append(ways, way)
		}
	}
	type line struct {
		way
		own bool
	}
	var lines []line
	for _, way := range ways {
		lines = append(lines, line{way, true})
		if way.version == 2 {
			lines = append(lines, line{way, false})
		}
	}
	rows := [][]string{{"Way", "p50 without", "p50 with", "p99 without", "p99 with", "Ratio of p99", "Failed"}}
	measured := make([]others, len(lines))
	for round := range w.rounds {
		for turn := range lines {
			i := (turn + round) % len(lines)
			if err := w.beside(lines[i].way, lines[i].own, round%2 == 0, &measured[i]); err != nil {
				return fmt.Errorf("%s: %w", lines[i].name, err)
			}
		}
	}
	for i, line := range lines {
		it := &measured[i]
		name := line.name
		if !line.own {
			name += ", one connection"
		}
		without, with := quantile(it.without, 0.99), quantile(it.with, 0.99)
		ratio := float64(with) / float64(without)
		if limited[line.name] {
			report.limit("unread, "+name+": ratio of p99", ratio, 1.1)
		}
		p50 := []string{ms(quantile(it.without, 0.5)), ms(quantile(it.with, 0.5))}
		rows = append(rows, []string{name, p50[0], p50[1], ms(without), ms(with), fmt.Sprintf("%.2f", ratio), fmt.Sprint(it.failed)})
	}
	title := fmt.Sprintf("%d requests with and without %d logs that are not read, in turns of %d, to the server without work:",
		w.rounds*block, unreadStreams, block)
	report.table(title, rows)
	return nil
}

type others struct {
	without, with []time.Duration
	failed        int
}

// One turn with streams, which have connections of their own or that of the other requests, and one without.
func (w *world) beside(way way, own, first bool, measured *others) error {
	client := way.connect(bare)
	defer client.close()
	for _, streams := range []bool{first, !first} {
		if !streams {
			if err := requestsTo(client, &measured.without, &measured.failed); err != nil {
				return err
			}
			continue
		}
		err := w.withStreams(way, client, own, func() error { return requestsTo(client, &measured.with, &measured.failed) })
		if err != nil {
			return err
		}
	}
	return nil
}

func requestsTo(client client, times *[]time.Duration, failed *int) error {
	for request := range block + block/10 {
		ctx, cancel := context.WithTimeout(context.Background(), tooLong)
		began := time.Now()
		_, err := client.read(ctx, "/version")
		cancel()
		switch {
		case err != nil && ctx.Err() == nil:
			return err
		case err != nil:
			*failed++
			return nil
		case request >= block/10:
			*times = append(*times, time.Since(began))
		}
	}
	return nil
}

// Runs with streams that have stopped because nobody reads them.
func (w *world) withStreams(way way, client client, own bool, run func() error) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for range unreadStreams {
		if own {
			client = way.connect(bare)
			defer client.close()
		}
		answer, err := client.get(ctx, logPath)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
	}
	observer := w.direct(1).connect(bare)
	defer observer.close()
	began := time.Now()
	for before, same := int64(-1), 0; same < 3; time.Sleep(20 * time.Millisecond) {
		text, err := observer.read(ctx, "/written")
		if err != nil {
			return err
		}
		written, err := strconv.ParseInt(string(text), 10, 64)
		if err != nil {
			return err
		}
		if written == before {
			same++
		} else {
			before, same = written, 0
		}
		if time.Since(began) > patience {
			return fmt.Errorf("the streams do not stop")
		}
	}
	return run()
}
