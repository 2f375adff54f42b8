package e2e

import (
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var sample = regexp.MustCompile(`^([a-z_]+)(\{.*\})? (\S+)$`)

// Metric returns the sum of the samples of a metric that have all the given labels, such as phase="mutate". Metric
// returns 0 if there is no such sample.
func (p *Postern) Metric(tb testing.TB, name string, labels ...string) float64 {
	tb.Helper()
	return p.Metrics(tb).Sum(tb, name, labels...)
}

// Metrics are the samples of all metrics at one moment, by metric. A sample is its labels and its value.
type Metrics map[string][][2]string

// Metrics reads all metrics.
func (p *Postern) Metrics(tb testing.TB) Metrics {
	tb.Helper()
	text, err := p.get(tb.Context(), "/metrics")
	if err != nil {
		tb.Fatalf("Reading Postern's metrics: %v", err)
	}
	return metricsOf(text)
}

// Metrics reads all metrics of the API server.
func (c *Cluster) Metrics(tb testing.TB) Metrics {
	tb.Helper()
	text, err := c.Admin.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(tb.Context())
	if err != nil {
		tb.Fatalf("Reading the API server's metrics: %v", err)
	}
	return metricsOf(string(text))
}

func metricsOf(text string) Metrics {
	m := Metrics{}
	for line := range strings.Lines(text) {
		if s := sample.FindStringSubmatch(strings.TrimSpace(line)); s != nil {
			m[s[1]] = append(m[s[1]], [2]string{s[2], s[3]})
		}
	}
	return m
}

// Sum is Metric of these metrics.
func (m Metrics) Sum(tb testing.TB, name string, labels ...string) float64 {
	tb.Helper()
	sum := 0.0
	for _, s := range m[name] {
		if !hasAll(s[0], labels) {
			continue
		}
		value, err := strconv.ParseFloat(s[1], 64)
		if err != nil {
			tb.Fatalf("Reading the metric %s%s: %v", name, s[0], err)
		}
		sum += value
	}
	return sum
}

func hasAll(series string, labels []string) bool {
	for _, l := range labels {
		if !strings.Contains(series, l) {
			return false
		}
	}
	return true
}

// Output runs a Postern command that needs no control plane, and returns the output.
func (s *Suite) Output(tb testing.TB, args ...string) string {
	tb.Helper()
	s.once.Do(func() { s.paths, s.err = build(tb.Context()) })
	if s.err != nil {
		tb.Fatal(s.err)
	}
	p, err := startProcess(filepath.Join(tb.TempDir(), "postern.log"), s.paths.binary, args...)
	if err != nil {
		tb.Fatalf("Starting postern: %v", err)
	}
	code, err := p.Wait(startBound)
	if err != nil || code != 0 {
		_ = p.Stop(stopBound)
		tb.Fatalf("postern %q: exit code %d, %v; it said:\n%s", args, code, err, p.output())
	}
	return p.output()
}
