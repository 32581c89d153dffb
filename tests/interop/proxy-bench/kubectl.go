package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"time"
)

// What a person waits for who has an API server far away.
func kubectl(w *world, report *report) error {
	for i := range 10 {
		pod := object{
			"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": fmt.Sprintf("pod-%d", i)},
			"spec": object{"containers": list{object{"name": "c", "image": "image"}}},
		}
		if err := w.create("/api/v1/namespaces/default/pods", pod); err != nil {
			return err
		}
	}
	proxies, err := w.all(far)
	if err != nil {
		return err
	}
	wrapped := filepath.Join(w.dir, "wrapped.kubeconfig")
	wrap := []string{"kubeconfig", "wrap", "--kubeconfig", w.original, "--socket", w.socket, "--output", wrapped}
	if err := w.run(w.broker, wrap...); err != nil {
		return err
	}
	type line struct{ name, kubeconfig, server string }
	lines := []line{
		{"direct, near", w.static, near},
		{"direct", w.static, far},
		{"plugin and shim", wrapped, far},
	}
	for _, proxy := range proxies {
		defer proxy.stop()
		lines = append(lines, line{proxy.name, proxy.kubeconfig, far})
	}
	times := make([][]time.Duration, len(lines))
	// The first lets kubectl keep what it learns about the API server, as it does for hours.
	for round := range w.rounds + 1 {
		for turn := range lines {
			i := (turn + round) % len(lines)
			command := exec.Command(w.kubectl, "--kubeconfig", lines[i].kubeconfig, "--context", lines[i].server, "get", "pods")
			command.Env = append(w.environment(), "KUBECACHEDIR="+filepath.Join(w.dir, fmt.Sprint("cache-", i)))
			began := time.Now()
			if output, err := command.CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w: %s", lines[i].name, err, output)
			}
			if took := time.Since(began); round > 0 {
				times[i] = append(times[i], took)
			}
		}
	}
	ideal := milliseconds(quantile(times[0], 0.5) + 2*oneWay)
	rows := [][]string{{"Through", "Median", "95th percentile", "Divided by the first line and a round trip"}}
	for i, line := range lines {
		median, p95 := milliseconds(quantile(times[i], 0.5)), milliseconds(quantile(times[i], 0.95))
		ratio := ""
		if i > 0 {
			ratio = fmt.Sprintf("%.2f", median/ideal)
			report.Bars = append(report.Bars, bar{line.name, median, p95})
		}
		if line.name == "credbroker" {
			report.limit("kubectl, credbroker: ratio", median/ideal, 1.15)
		}
		rows = append(rows, []string{line.name, fmt.Sprintf("%.0f ms", median), fmt.Sprintf("%.0f ms", p95), ratio})
	}
	title := fmt.Sprintf("`kubectl get pods` with an API server %s away, %d runs, in turns:", 2*oneWay, w.rounds)
	report.table(title, rows)
	return nil
}
