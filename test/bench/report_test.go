package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func samples(perRequest ...time.Duration) []sample {
	var out []sample
	for _, d := range perRequest {
		out = append(out, sample{load: load{requests: 10, wall: time.Second, latencies: []time.Duration{d}}, cpu: 10 * d, client: 10 * d})
	}
	return out
}

func TestRatiosAreTakenWithinARound(t *testing.T) {
	// The machine is ten times slower in the second round, for both.
	got := ratioOf(samples(20, 300, 40), samples(10, 100, 10))
	if want := (spread{Median: 3, Min: 2, Max: 4}); got != want {
		t.Errorf("Got %+v, want %+v", got, want)
	}
}

func TestQuantile(t *testing.T) {
	values := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
	for q, want := range map[float64]int{0: 1, 0.5: 6, 0.99: 11, 1: 11} {
		if got := quantile(values, q); got != want {
			t.Errorf("Got %d as the %v-quantile, want %d", got, q, want)
		}
	}
}

func TestReportHasEveryNumber(t *testing.T) {
	x, err := newSeries(shapes()[0])
	if err != nil {
		t.Fatal(err)
	}
	c := &cell{series: x, connections: 16, samples: map[string][]sample{
		nameFloor: samples(50 * time.Microsecond), nameMutate: samples(150 * time.Microsecond), namePeer: samples(600 * time.Microsecond),
	}}
	r := &report{Rounds: 1, names: []string{nameFloor, nameMutate, namePeer}, Memory: map[string]memRow{nameMutate: {RSS: 40 << 20, Most: 50 << 20}}}
	r.addCell(c)
	var out bytes.Buffer
	if err := r.write(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"small", "3.0 [3.0-3.0]", "12.0 [12.0-12.0]", "| Postern, 20 plugins          | 40     | 50   |", "0.6"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("The tables lack %q:\n%s", want, out.String())
		}
	}
	file := filepath.Join(t.TempDir(), "report.json")
	if err := r.writeFile(file); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var decoded report
	if err := json.Unmarshal(data, &decoded); err != nil {
		t.Fatal(err)
	}
	if got := decoded.Cells[0].Ratios[nameMutate].Median; got != 3 {
		t.Errorf("Got the ratio %v in the file, want 3", got)
	}
	if got := decoded.Cells[0].Servers[namePeer].CPU.Median; got != 600 {
		t.Errorf("Got %v µs in the file, want 600", got)
	}
}

func TestDocsKeepWhatIsNotMeasured(t *testing.T) {
	x, err := newSeries(shapes()[0])
	if err != nil {
		t.Fatal(err)
	}
	r := &report{names: []string{nameFloor, nameMutate}, Memory: map[string]memRow{}}
	r.addCell(&cell{series: x, connections: plotConnections, samples: map[string][]sample{
		nameFloor: samples(50 * time.Microsecond), nameMutate: samples(150 * time.Microsecond),
	}})
	dir := t.TempDir()
	name := filepath.Join(dir, "performance.md")
	begin, end := borders("requests")
	beginResults, endResults := string(begin), string(end)
	if err := os.WriteFile(name, []byte("# Before\n"+beginResults+"old\n"+endResults+"# After\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.writeDocs(dir); err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(doc); !strings.HasPrefix(got, "# Before\n"+beginResults) || !strings.HasSuffix(got, endResults+"# After\n") || strings.Contains(got, "old") || !strings.Contains(got, "3.0 [3.0-3.0]") {
		t.Errorf("Got the document\n%s", got)
	}
	plot, err := os.ReadFile(filepath.Join(dir, "performance.svg"))
	if err != nil {
		t.Fatal(err)
	}
	if err := xml.Unmarshal(plot, new(struct{})); err != nil || !strings.Contains(string(plot), ">3.0</text>") {
		t.Errorf("Got the plot (%v)\n%s", err, plot)
	}
	if err := r.writeDocs(t.TempDir()); err == nil {
		t.Error("Got no error for a folder without the document")
	}
}
