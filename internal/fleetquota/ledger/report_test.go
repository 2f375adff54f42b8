package ledger_test

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fleetquota/ledger"
)

var (
	report  = flag.Bool("report", false, "simulate large fleets, and write the table and the plot in docs")
	largest = flag.Int("clusters", 1000, "the largest fleet of the report")
)

// row is one fleet of the report.
type row struct {
	clusters int
	policy   policy
	stats
	seconds float64
}

// large returns a fleet for the report: the limit is 20 CPUs for each cluster, and at a time a quarter of the clusters
// send requests.
func large(clusters int, p policy) setting {
	return setting{
		seed: 7, clusters: clusters, replicas: 2, limit: 20 * int64(clusters), duration: 10 * time.Minute, every: 4 * time.Second, keeps: 2 * time.Minute,
		largest: 4, busy: max(clusters/4, 1), heartbeat: 5 * time.Minute, step: 10 / float64(20*clusters), latency: 40 * time.Millisecond, policy: p,
		lostRequests: 2, lostAnswers: 2,
	}
}

// TestReport compares three ways to share a limit. Without -report it only runs the smallest fleet.
func TestReport(t *testing.T) {
	sizes := []int{10}
	if *report {
		sizes = slices.DeleteFunc([]int{10, 30, 100, 300, 1000, 3000}, func(n int) bool { return n > *largest })
	}
	var rows []row
	for _, n := range sizes {
		for _, p := range []policy{allowances, askHub, staticShares} {
			w := newWorld(large(n, p))
			w.live()
			w.run(w.duration)
			w.end()
			if w.broken != "" {
				t.Fatalf("%d clusters, policy %d: %s", n, p, w.broken)
			}
			w.count()
			t.Logf("%d clusters, %v: %d decisions", n, p, len(w.stats.waits))
			rows = append(rows, row{n, p, w.stats, w.duration.Seconds()})
		}
	}
	if rows[0].local() < 0.5 || rows[1].local() != 0 || rows[2].local() == 0 {
		t.Errorf("Got %.2f, %.2f and %.2f local decisions, want most, none and some", rows[0].local(), rows[1].local(), rows[2].local())
	}
	if *report {
		write(t, rows)
	}
}

func (p policy) String() string {
	return [...]string{"allowances", "ask the hub each time", "static shares"}[p]
}

func (r *row) decisions() int {
	n := r.failed
	for _, c := range r.decided {
		n += c
	}
	return max(n, 1)
}

// local returns the share of the decisions that needed no call to the hub.
func (r *row) local() float64 {
	n := r.decided[ledger.Within]
	if r.policy == staticShares {
		n += r.decided[ledger.Refused]
	}
	return float64(n) / float64(r.decisions())
}

func (r *row) quantile(q float64) time.Duration {
	waits := slices.Sorted(slices.Values(r.waits))
	if len(waits) == 0 {
		return 0
	}
	return waits[int(q*float64(len(waits)-1))]
}

const (
	tableBegin = "<!-- The table is written by: go test ./internal/fleetquota/ledger -run TestReport -report -timeout 60m -->\n"
	tableEnd   = "<!-- End of the table. -->\n"
)

func write(t *testing.T, rows []row) {
	t.Helper()
	docs := filepath.Join("..", "..", "..", "docs")
	var table bytes.Buffer
	table.WriteString("| clusters | way | local decisions | hub writes/s | hub calls/s | conflicts/s | wait p50 | p99 | denied with room | failed | used on average |\n|---|---|---|---|---|---|---|---|---|---|---|\n")
	for i := range rows {
		r := &rows[i]
		n := float64(r.decisions())
		fmt.Fprintf(&table, "| %d | %v | %.1f%% | %.2f | %.2f | %.2f | %v | %v | %.1f%% | %.1f%% | %.0f%% |\n", r.clusters, r.policy, 100*r.local(),
			float64(r.hubWrites)/r.seconds, float64(r.hubCalls)/r.seconds, float64(r.hubConflicts)/r.seconds,
			r.quantile(0.5).Round(time.Millisecond), r.quantile(0.99).Round(time.Millisecond),
			100*float64(r.refusedWithRoom-r.failed)/n, 100*float64(r.failed)/n, 100*r.usedTime/r.limitTime)
	}
	file := filepath.Join(docs, "fleet-quota.md")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), tableBegin)
	_, after, found := strings.Cut(rest, tableEnd)
	if !ok || !found {
		t.Fatalf("%s has no place for the table", file)
	}
	if err := os.WriteFile(file, []byte(before+tableBegin+table.String()+tableEnd+after), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(docs, "fleet-quota.svg"), plot(rows), 0o644); err != nil {
		t.Fatal(err)
	}
}

// plot draws the writes at the hub over the number of clusters, both on logarithmic axes.
func plot(rows []row) []byte {
	const width, height, left, bottom = 640, 360, 70, 50
	x := func(clusters int) float64 { return left + (width-left-160)*(math.Log10(float64(clusters))-1)/2.5 }
	y := func(rate float64) float64 {
		return height - bottom - (height-bottom-20)*(math.Log10(max(rate, 0.001))+3)/6
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", width, height)
	for e := -3; e <= 3; e++ {
		rate := math.Pow10(e)
		fmt.Fprintf(&b, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%g</text>`+"\n", left, y(rate), width-160, y(rate), left-6, y(rate)+4, rate)
	}
	for _, n := range []int{10, 30, 100, 300, 1000, 3000} {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%d</text>`+"\n", x(n), height-bottom+18, n)
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">clusters</text><text x="16" y="%d" transform="rotate(-90 16 %d)" text-anchor="middle">writes per second at the hub</text>`+"\n", (left+width-160)/2, height-10, height/2, height/2)
	for p, colour := range []string{"#1f77b4", "#d62728"} {
		var points []string
		last := 0.0
		for i := range rows {
			if r := &rows[i]; r.policy == policy(p) {
				last = y(float64(r.hubWrites) / r.seconds)
				points = append(points, fmt.Sprintf("%.1f,%.1f", x(r.clusters), last))
			}
		}
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/><text x="%d" y="%.1f" fill="%s">%v</text>`+"\n", strings.Join(points, " "), colour, width-155, last+4, colour, policy(p))
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" fill="#2ca02c">%v: none</text>`+"\n</svg>\n", width-155, height-bottom, staticShares)
	return b.Bytes()
}
