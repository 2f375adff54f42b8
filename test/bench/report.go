package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"
)

// report holds the results of a run. Times are in microseconds.
type report struct {
	Go       string            `json:"go"`
	CPUs     int               `json:"cpus"`
	Requests int               `json:"requests"`
	Rounds   int               `json:"rounds"`
	Cells    []cellReport      `json:"cells"`
	Memory   map[string]memRow `json:"memory"`
	names    []string
}

type cellReport struct {
	Pod         string               `json:"pod"`
	Bytes       int                  `json:"bytes"`
	Connections int                  `json:"connections"`
	Servers     map[string]serverRow `json:"servers"`
	Ratios      map[string]spread    `json:"ratios"`
}

type serverRow struct {
	CPU               spread  `json:"cpuMicros"`
	ClientCPU         spread  `json:"clientCPUMicros"`
	RequestsPerSecond spread  `json:"requestsPerSecond"`
	P50               float64 `json:"p50Micros"`
	P99               float64 `json:"p99Micros"`
}

type memRow struct {
	RSS  int64 `json:"rssBytes"`
	Most int64 `json:"mostRSSBytes"`
}

// spread summarizes the values of one number over the rounds.
type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func spreadOf(values []float64) spread {
	slices.Sort(values)
	return spread{Median: quantile(values, 0.5), Min: values[0], Max: values[len(values)-1]}
}

// quantile returns the q-quantile of sorted values. The result is one of the values.
func quantile[T cmp.Ordered](sorted []T, q float64) T {
	return sorted[int(q*float64(len(sorted)-1)+0.5)]
}

// ratios are the reported ratios. Each ratio is the time of the first server divided
// by the time of the second server.
func ratios(names []string) [][2]string {
	out := [][2]string{{namePostern, nameFloor}, {namePeer, namePostern}}
	if slices.Contains(names, nameBaseline) {
		out = append(out, [2]string{nameBaseline, namePostern})
	}
	if slices.Contains(names, nameQuota) {
		out = append(out, [2]string{nameQuota, nameFloor})
	}
	return out
}

func newReport(b *bench, list []*server, cells []*cell) (*report, error) {
	r := &report{Go: runtime.Version(), CPUs: runtime.NumCPU(), Requests: b.requests, Rounds: b.rounds, Memory: map[string]memRow{}}
	for _, s := range list {
		now, most, err := memory(s.cmd.Process.Pid)
		if err != nil {
			return nil, err
		}
		r.names = append(r.names, s.name)
		r.Memory[s.name] = memRow{RSS: now, Most: most}
	}
	for _, c := range cells {
		r.addCell(c)
	}
	return r, nil
}

func (r *report) addCell(c *cell) {
	row := cellReport{
		Pod: c.series.name, Bytes: len(c.series.pod), Connections: c.connections,
		Servers: map[string]serverRow{}, Ratios: map[string]spread{},
	}
	for name, samples := range c.samples {
		row.Servers[name] = rowOf(samples)
	}
	for _, pair := range ratios(r.names) {
		row.Ratios[pair[0]+"/"+pair[1]] = ratioOf(c.samples[pair[0]], c.samples[pair[1]])
	}
	r.Cells = append(r.Cells, row)
}

func rowOf(samples []sample) serverRow {
	var cpu, client, rate []float64
	var latencies []time.Duration
	for _, s := range samples {
		cpu = append(cpu, micros(s.perRequest()))
		client = append(client, micros(s.client)/float64(s.requests))
		rate = append(rate, float64(s.requests)/s.wall.Seconds())
		latencies = append(latencies, s.latencies...)
	}
	slices.Sort(latencies)
	return serverRow{
		CPU: spreadOf(cpu), ClientCPU: spreadOf(client), RequestsPerSecond: spreadOf(rate),
		P50: micros(quantile(latencies, 0.5)), P99: micros(quantile(latencies, 0.99)),
	}
}

// ratioOf compares the servers round by round, because other load on the machine affects
// both servers of a round.
func ratioOf(a, b []sample) spread {
	var values []float64
	for i := range a {
		values = append(values, float64(a[i].perRequest())/float64(b[i].perRequest()))
	}
	return spreadOf(values)
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func (r *report) writeFile(name string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the report: %w", err)
	}
	if err := os.WriteFile(name, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

func (r *report) write(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(out, "%s, %d cores, %d rounds. CPU time of the server (client: of this process while it asks postern)\nfor one request, in µs; medians, and [lowest-highest] of the rounds.\n\n", r.Go, r.CPUs, r.Rounds)
	r.writeCPU(w)
	fmt.Fprintf(w, "\n")
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "Requests per second, and latency (50th and 99th percentile, ms), as seen by the client on the same machine.\n\n")
	r.writeRates(w)
	fmt.Fprintf(w, "\n")
	if err := w.Flush(); err != nil {
		return err
	}
	for _, name := range r.names {
		m := r.Memory[name]
		fmt.Fprintf(out, "%s: %d MiB resident, at most %d MiB\n", name, m.RSS>>20, m.Most>>20)
	}
	return nil
}

func (r *report) writeCPU(w io.Writer) {
	fmt.Fprint(w, "pod\tbytes\tconns\t")
	for _, name := range r.names {
		fmt.Fprintf(w, "%s\t", name)
	}
	fmt.Fprint(w, "client\t")
	for _, pair := range ratios(r.names) {
		fmt.Fprintf(w, "%s/%s\t", pair[0], pair[1])
	}
	fmt.Fprintln(w)
	for _, c := range r.Cells {
		fmt.Fprintf(w, "%s\t%d\t%d\t", c.Pod, c.Bytes, c.Connections)
		for _, name := range r.names {
			fmt.Fprintf(w, "%.0f\t", c.Servers[name].CPU.Median)
		}
		fmt.Fprintf(w, "%.0f\t", c.Servers[namePostern].ClientCPU.Median)
		for _, pair := range ratios(r.names) {
			s := c.Ratios[pair[0]+"/"+pair[1]]
			fmt.Fprintf(w, "%.2f [%.2f-%.2f]\t", s.Median, s.Min, s.Max)
		}
		fmt.Fprintln(w)
	}
}

func (r *report) writeRates(w io.Writer) {
	fmt.Fprint(w, "pod\tconns\t")
	for _, name := range r.names {
		fmt.Fprintf(w, "%s: req/s\tp50\tp99\t", name)
	}
	fmt.Fprintln(w)
	for _, c := range r.Cells {
		fmt.Fprintf(w, "%s\t%d\t", c.Pod, c.Connections)
		for _, name := range r.names {
			s := c.Servers[name]
			fmt.Fprintf(w, "%.0f\t%.2f\t%.2f\t", s.RequestsPerSecond.Median, s.P50/1000, s.P99/1000)
		}
		fmt.Fprintln(w)
	}
}
