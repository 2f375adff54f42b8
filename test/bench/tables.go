package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// write writes the report as Markdown whose tables are aligned.
func (r *report) write(out io.Writer) error {
	fmt.Fprintf(out, "Measured on %s with %s on %d cores (%s), Postern %s, %d rounds of up to %d requests. CPU time of the server for one request, "+
		"divided by that of the floor in the same round: median and [lowest-highest] of the rounds. "+
		"The column *floor* is its CPU time in µs.\n\n", r.Time, r.Go, r.CPUs, r.CPU, r.Version, r.Rounds, r.Requests)
	if err := r.table(out, []string{nameFloor}, func(c cellReport, name string) string {
		if name == nameFloor {
			return fmt.Sprintf("%.0f", c.Servers[name].CPU.Median)
		}
		s := c.Ratios[name]
		return fmt.Sprintf("%.1f [%.1f-%.1f]", s.Median, s.Min, s.Max)
	}); err != nil {
		return err
	}
	fmt.Fprint(out, "\nRequests per second, and the 50th and 99th percentile of the latency in ms, as the client sees them. The client runs "+
		"on the same cores, so these numbers are not for comparison with other machines.\n\n")
	if err := r.table(out, []string{nameFloor}, func(c cellReport, name string) string {
		s := c.Servers[name]
		return fmt.Sprintf("%.0f, %.1f, %.1f", s.RequestsPerSecond.Median, s.P50/1000, s.P99/1000)
	}); err != nil {
		return err
	}
	fmt.Fprint(out, "\nResident memory at the end, and the most during the run, in MiB.\n\n")
	w := tabwriter.NewWriter(out, 0, 0, 1, ' ', tabwriter.Debug)
	fmt.Fprint(w, "| server\t memory\t most\t\n| ---\t ---\t ---\t\n")
	for _, name := range r.names {
		m := r.Memory[name]
		fmt.Fprintf(w, "| %s\t %d\t %d\t\n", name, m.RSS>>20, m.Most>>20)
	}
	return w.Flush()
}

// table writes a row for each cell, and a column for each server, those in first before the others.
func (r *report) table(out io.Writer, first []string, entry func(c cellReport, name string) string) error {
	names := first
	for _, name := range r.names {
		if name != nameFloor {
			names = append(names, name)
		}
	}
	w := tabwriter.NewWriter(out, 0, 0, 1, ' ', tabwriter.Debug)
	fmt.Fprintf(w, "| pod\t bytes\t conns\t %s\t\n|%s\n", strings.Join(names, "\t "), strings.Repeat(" ---\t", len(names)+3))
	for _, c := range r.Cells {
		fmt.Fprintf(w, "| %s\t %d\t %d\t", c.Pod, c.Bytes, c.Connections)
		for _, name := range names {
			fmt.Fprintf(w, " %s\t", entry(c, name))
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}
