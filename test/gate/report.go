package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// slowest is the longest time, in seconds, that a test without subtests may take.
const slowest = 20

// event is an event of go test -json.
type event struct {
	Action  string
	Package string
	Test    string
	Elapsed float64
}

// row is what became of a package, if Test is empty, or of a test.
type row struct {
	Package, Test string
	result        string
	wall, cpu     float64 // in seconds; the CPU time of a test is not known
	subtests      bool
}

// flaky is the result of a test that passed only in a second attempt.
const flaky = "flaky"

// tests are the rows by part.
type tests map[string][]*row

// read reads the events of the parts, and the CPU times of packages.
func (t times) read(parts []string) (tests, error) {
	cpu, err := t.readCPU()
	if err != nil {
		return nil, err
	}
	out := tests{}
	for _, part := range parts {
		files, err := filepath.Glob(filepath.Join(t.folder, part+"-*.json"))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			rows, err := rowsOf(data)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			for _, r := range rows {
				if r.Test == "" {
					r.cpu = cpu[r.Package]
				}
			}
			out[part] = append(out[part], rows...)
		}
	}
	return out, nil
}

// readCPU returns the seconds of CPU of each package, all attempts together.
func (t times) readCPU() (map[string]float64, error) {
	data, err := os.ReadFile(t.cpu())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	out := map[string]float64{}
	for line := range strings.Lines(string(data)) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), "\t")
		seconds, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %q: %w", t.cpu(), line, err)
		}
		out[name] += seconds
	}
	return out, nil
}

// rowsOf returns a row for each package and test of the events. The last attempt of a test is what counts.
func rowsOf(events []byte) ([]*row, error) {
	type key struct{ Package, Test string }
	rows := map[key]*row{}
	for decoder := json.NewDecoder(bytes.NewReader(events)); ; {
		var e event
		if err := decoder.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		if e.Action != "pass" && e.Action != "fail" && e.Action != "skip" {
			continue
		}
		k := key{e.Package, e.Test}
		r := rows[k]
		if r == nil {
			r = &row{Package: e.Package, Test: e.Test}
			rows[k] = r
		}
		failed := r.result == "fail"
		if r.result = e.Action; failed && e.Action == "pass" {
			r.result = flaky
		}
		r.wall += e.Elapsed
	}
	for k := range rows {
		for i, c := range k.Test {
			if above := rows[key{k.Package, k.Test[:i]}]; c == '/' && above != nil {
				above.subtests = true
			}
		}
	}
	return slices.SortedFunc(maps.Values(rows), func(a, b *row) int {
		return cmp.Or(cmp.Compare(a.Package, b.Package), cmp.Compare(a.Test, b.Test))
	}), nil
}

// write writes a table of all times.
func write(file string, parts []part, all tests) error {
	var b bytes.Buffer
	b.WriteString("part\tpackage\ttest\twall seconds\tCPU seconds\tresult\n")
	for _, p := range parts {
		fmt.Fprintf(&b, "%s\t\t\t%.1f\t%.1f\t%s\n", p.name, p.wall.Seconds(), p.cpu.Seconds(), cmp.Or(p.failure, "pass"))
		for _, r := range all[p.name] {
			cpu := ""
			if r.Test == "" {
				cpu = fmt.Sprintf("%.1f", r.cpu)
			}
			fmt.Fprintf(&b, "%s\t%s\t%s\t%.1f\t%s\t%s\n", p.name, r.Package, r.Test, r.wall, cpu, r.result)
		}
	}
	return os.WriteFile(file, b.Bytes(), 0o600)
}

// named returns the tests of all parts that the func selects.
func (t tests) named(selects func(*row) bool) []*row {
	var out []*row
	for _, part := range slices.Sorted(maps.Keys(t)) {
		for _, r := range t[part] {
			if r.Test != "" && selects(r) {
				out = append(out, r)
			}
		}
	}
	return out
}

func (r *row) String() string { return fmt.Sprintf("%s %s (%.0f s)", r.Package, r.Test, r.wall) }

// overBudget returns what is over its budget, or nothing. The CPU time is that of the tests, without compilers, whose time
// depends on the caches of the machine.
func overBudget(budget float64, all tests) string {
	if budget == 0 {
		return ""
	}
	var over []string
	cpu := 0.0
	for _, rows := range all {
		for _, r := range rows {
			cpu += r.cpu
		}
	}
	if cpu > budget {
		over = append(over, fmt.Sprintf("the tests took %.0f s of CPU, and the budget is %.0f s", cpu, budget))
	}
	// The time of a test with subtests is mostly theirs.
	for _, r := range all.named(func(r *row) bool { return r.wall > slowest && !r.subtests }) {
		over = append(over, fmt.Sprintf("%s, and a test may take %d s", r, slowest))
	}
	return strings.Join(over, "\n  ")
}

// summarize prints the last lines of a run, and returns whether all parts passed.
func summarize(out io.Writer, parts []part, all tests, over string) bool {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }
	failed := all.named(func(r *row) bool { return r.result == "fail" })
	for _, r := range all.named(func(r *row) bool { return r.result == flaky }) {
		say("FLAKY %s passed only when it ran once more, alone", r)
	}
	if over != "" {
		say("OVER BUDGET\n  %s", over)
		expensive := all.named(func(r *row) bool { return !r.subtests })
		slices.SortStableFunc(expensive, func(a, b *row) int { return cmp.Compare(b.wall, a.wall) })
		say("The five longest tests:")
		for _, r := range expensive[:min(5, len(expensive))] {
			say("  %s", r)
		}
	}
	for _, r := range failed {
		say("FAILED %s", r)
	}
	passed := true
	for _, p := range parts {
		if p.failure != "" {
			say("FAILED %s: %s", p.name, p.failure)
			passed = false
		}
	}
	return passed
}

// total returns how long each part took.
func total(parts []part) string {
	var wall, cpu time.Duration
	texts := make([]string, 0, len(parts))
	for _, p := range parts {
		wall, cpu = wall+p.wall, cpu+p.cpu
		texts = append(texts, fmt.Sprintf("%s %.0f s", p.name, p.wall.Seconds()))
	}
	return fmt.Sprintf("%.0f s, %.0f s of CPU (%s)", wall.Seconds(), cpu.Seconds(), strings.Join(texts, ", "))
}
