package e2e

import (
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var sample = regexp.MustCompile(`(?m)^([a-z_]+)(\{.*\})? (\S+)$`)

// Metric is the sum of those samples of a metric of which all the labels hold, each as in phase="mutate".
// It is 0 where there is none.
func (p *Postern) Metric(tb testing.TB, name string, labels ...string) float64 {
	tb.Helper()
	text, err := p.get(tb.Context(), "/metrics")
	if err != nil {
		tb.Fatalf("Reading Postern's metrics: %v", err)
	}
	sum := 0.0
	for _, s := range sample.FindAllStringSubmatch(text, -1) {
		if s[1] != name || !hasAll(s[2], labels) {
			continue
		}
		value, err := strconv.ParseFloat(s[3], 64)
		if err != nil {
			tb.Fatalf("Reading Postern's metrics: %s: %v", s[0], err)
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

// Output runs one of Postern's commands that needs no control plane and returns what it said.
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
	code, err := p.wait(startBound)
	if err != nil || code != 0 {
		_ = p.stop(stopBound)
		tb.Fatalf("postern %q: exit code %d, %v; it said:\n%s", args, code, err, p.output())
	}
	return p.output()
}
