package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"
)

// report holds the results of a run. Times are in microseconds.
type report struct {
	Version  string            `json:"version"`
	Time     string            `json:"time"`
	CPU      string            `json:"cpu"`
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
	// Ratios are the times of the servers divided by that of the floor in the same round.
	Ratios map[string]spread `json:"ratiosToFloor"`
}

type serverRow struct {
	CPU               spread  `json:"cpuMicros"`
	ClientCPU         spread  `json:"clientCPUMicros"`
	RequestsPerSecond spread  `json:"requestsPerSecond"`
	P50               float64 `json:"p50Micros"`
	P99               float64 `json:"p99Micros"`
}

// memRow is the resident memory of a process. Private is the part of it that is no file: the rest is the program itself,
// as far as it was read.
type memRow struct {
	RSS     int64 `json:"rssBytes"`
	Private int64 `json:"privateBytes"`
	Most    int64 `json:"mostRSSBytes"`
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

func newReport(b *bench, list []*server, cells []*cell) (*report, error) {
	r := &report{Version: versionOf(b.binary), CPU: processor(), Time: time.Now().UTC().Format("2006-01-02"), Go: runtime.Version(), CPUs: runtime.NumCPU(), Requests: b.requests, Rounds: b.rounds, Memory: map[string]memRow{}}
	for _, s := range list {
		use, err := memory(s.cmd.Process.Pid)
		if err != nil {
			return nil, err
		}
		r.names = append(r.names, s.name)
		r.Memory[s.name] = use
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
	for name, samples := range c.samples {
		row.Ratios[name] = ratioOf(samples, c.samples[nameFloor])
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
