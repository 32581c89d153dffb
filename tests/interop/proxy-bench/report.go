package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// The tables as Markdown, what the plot shows, and the limits that were missed.
type report struct {
	Tables []string
	Bars   []bar
	Missed []string
}

type bar struct {
	Label       string
	Median, P95 float64
}

// Prints a table. The first row has the names of the columns.
func (r *report) table(title string, rows [][]string) {
	lines := []string{title, ""}
	for i, row := range rows {
		lines = append(lines, "| "+strings.Join(row, " | ")+" |")
		if i == 0 {
			lines = append(lines, "|"+strings.Repeat("---|", len(row)))
		}
	}
	text := strings.Join(lines, "\n")
	fmt.Printf("\n%s\n", text)
	r.Tables = append(r.Tables, text)
}

func (r *report) limit(what string, value, limit float64) {
	verdict := "met"
	if value > limit {
		verdict = "MISSED"
		r.Missed = append(r.Missed, what)
	}
	fmt.Printf("%s: %.3g, at most %.3g: %s\n", what, value, limit, verdict)
}

// The value below which a share of the values are. Sorts them.
func quantile(values []time.Duration, share float64) time.Duration {
	slices.Sort(values)
	return values[min(int(float64(len(values))*share), len(values)-1)]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", milliseconds(d)) }

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
