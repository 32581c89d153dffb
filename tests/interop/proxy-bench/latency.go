package main

import (
	"context"
	"fmt"
	"runtime"
	"time"
)

// Requests for each round of the report.
const requests = 50

// What a proxy adds to a request on a connection that is kept.
func latency(w *world, report *report) error {
	proxies, err := w.all(near, bare)
	if err != nil {
		return err
	}
	ways := []way{w.direct(1), w.direct(2)}
	for _, proxy := range proxies {
		defer proxy.stop()
		ways = append(ways, proxy.ways...)
	}
	for _, server := range []string{near, bare} {
		times, err := alternate(ways, server, w.rounds*requests)
		if err != nil {
			return err
		}
		rows := [][]string{{"Way", "p50", "added", "p99", "added"}}
		direct := times[:2]
		for i, way := range ways {
			p50, p99 := quantile(times[i], 0.5), quantile(times[i], 0.99)
			base := direct[way.version-1]
			row := []string{way.name, ms(p50), "", ms(p99), ""}
			if i >= len(direct) {
				added := p50 - quantile(base, 0.5)
				row[2], row[4] = ms(added), ms(p99-quantile(base, 0.99))
				if proxies[0].name == "credbroker" && i-len(direct) < len(proxies[0].ways) {
					report.limit(fmt.Sprintf("latency, %s, %s: added to p50, in ms", server, way.name), milliseconds(added), 0.25)
				}
			}
			rows = append(rows, row)
		}
		title := fmt.Sprintf("%d requests on a kept connection, in turns, to kube-apiserver (`/version`):", w.rounds*requests)
		if server == bare {
			title = "The same to a server of Go without work (1 KiB):"
		}
		report.table(title, rows)
	}
	return nil
}

// The times of requests by each way, in turns, so that a busy moment is one for all.
func alternate(ways []way, server string, rounds int) ([][]time.Duration, error) {
	var clients []client
	for _, way := range ways {
		client := way.connect(server)
		defer client.close()
		clients = append(clients, client)
	}
	times := make([][]time.Duration, len(ways))
	warm := rounds / 10
	for round := range warm + rounds {
		if round%requests == 0 {
			runtime.GC()
		}
		for turn := range ways {
			i := (turn + round) % len(ways)
			began := time.Now()
			if _, err := clients[i].read(context.Background(), "/version"); err != nil {
				return nil, fmt.Errorf("%s: %w", ways[i].name, err)
			}
			if took := time.Since(began); round >= warm {
				times[i] = append(times[i], took)
			}
		}
	}
	return times, nil
}
