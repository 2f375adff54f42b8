package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// table holds the results of all columns.
type table struct {
	groups     []group
	columns    []column
	kubernetes string
	postern    string // empty if no column runs Postern
	date       time.Time
	rows       []row
	excluded   []spec
}

// row is a test with its result in each column, by the column's name.
type row struct {
	name, group string
	results     map[string]spec
}

// add adds the results of a column.
func (t *table) add(c column, specs []spec) {
	for _, s := range specs {
		if s.excluded != "" {
			if !slices.ContainsFunc(t.excluded, func(e spec) bool { return e.name == s.name }) {
				t.excluded = append(t.excluded, s)
			}
			continue
		}
		i := slices.IndexFunc(t.rows, func(r row) bool { return r.name == s.name })
		if i < 0 {
			i = len(t.rows)
			t.rows = append(t.rows, row{s.name, s.group.name, map[string]spec{}})
		}
		t.rows[i].results[c.name] = s
	}
}

// proves reports whether the test fails without the plugins. Only such a test shows that Postern does what it should.
func (r row) proves() bool {
	s, ran := r.results[off]
	return ran && s.state != statePassed
}

func (r row) passed(column string) bool { return r.results[column].state == statePassed }

// write writes the table as Markdown: the tests by group, the excluded tests, and the failures.
func (t *table) write(out io.Writer) error {
	var b strings.Builder
	versions := []string{t.date.Format(time.DateOnly), "Kubernetes " + t.kubernetes}
	if t.postern != "" {
		versions = append(versions, t.postern)
	}
	fmt.Fprintf(&b, "%s.\n\n%s\n", strings.Join(versions, ", "), t.summary())
	t.writeRows(&b)
	t.writeExcluded(&b)
	t.writeFailures(&b)
	_, err := io.WriteString(out, b.String())
	return err
}

func (t *table) writeRows(b *strings.Builder) {
	b.WriteString("\n| test |")
	for _, c := range t.columns {
		fmt.Fprintf(b, " %s |", c.title)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(t.columns)) + "\n")
	for _, g := range t.groups {
		for _, r := range t.sorted(g) {
			fmt.Fprintf(b, "| %s |", cell(r.name))
			for _, c := range t.columns {
				result := r.results[c.name].state
				if c.name == off && r.proves() {
					result = "**" + result + "**"
				}
				fmt.Fprintf(b, " %s |", result)
			}
			b.WriteString("\n")
		}
	}
}

// sorted returns the rows of a group: first the tests that prove something, then by name.
func (t *table) sorted(g group) []row {
	var rows []row
	for _, r := range t.rows {
		if r.group == g.name {
			rows = append(rows, r)
		}
	}
	slices.SortFunc(rows, func(a, b row) int {
		if a.proves() != b.proves() {
			if a.proves() {
				return -1
			}
			return 1
		}
		return strings.Compare(a.name, b.name)
	})
	return rows
}

func (t *table) writeExcluded(b *strings.Builder) {
	if len(t.excluded) == 0 {
		return
	}
	b.WriteString("\n| not run | reason |\n|---|---|\n")
	slices.SortFunc(t.excluded, func(a, b spec) int { return strings.Compare(a.name, b.name) })
	for _, s := range t.excluded {
		fmt.Fprintf(b, "| %s | It %s. |\n", cell(s.name), s.excluded)
	}
}

// writeFailures writes the messages of the tests that should have passed.
func (t *table) writeFailures(b *strings.Builder) {
	for _, r := range t.rows {
		for _, c := range t.columns {
			if s := r.results[c.name]; c.name != off && s.state != statePassed {
				fmt.Fprintf(b, "\n%s, with %s: %s\n%s\n", r.name, c.title, s.state, s.message)
			}
		}
	}
}

// cell returns the name of a test for a cell of a table. The characters that mean something in Markdown are escaped.
func cell(name string) string {
	return strings.NewReplacer("|", `\|`, "[", `\[`, "]", `\]`, "<", `\<`).Replace(name)
}

// summary counts the tests. Tests that pass without the plugins prove nothing.
func (t *table) summary() string {
	counts := map[string]int{}
	var proving, proved int
	for _, r := range t.rows {
		for _, c := range t.columns {
			if r.passed(c.name) {
				counts[c.name]++
			}
		}
		if r.proves() {
			proving++
			if r.passed(offPostern) {
				proved++
			}
		}
	}
	var parts []string
	for _, c := range t.columns {
		parts = append(parts, fmt.Sprintf("%d with %s", counts[c.name], c.title))
	}
	text := fmt.Sprintf("Of %d tests pass: %s.", len(t.rows), strings.Join(parts, ", "))
	if t.has(off) {
		text += fmt.Sprintf(" Tests that prove something about Postern, because they fail with neither: %d.", proving)
		if t.has(offPostern) {
			text += fmt.Sprintf(" Of these, %d pass with Postern's plugins.", proved)
		}
	}
	return text
}

func (t *table) has(name string) bool {
	return slices.ContainsFunc(t.columns, func(c column) bool { return c.name == name })
}

// judge returns an error unless all tests pass with kube-apiserver's plugins and with Postern's. A test that does not
// pass with kube-apiserver's plugins must be excluded. If all columns ran, judge also returns an error if no test
// proves anything.
func (t *table) judge() error {
	var errs []error
	proving := 0
	for _, r := range t.rows {
		for _, c := range t.columns {
			if c.name != off && !r.passed(c.name) {
				errs = append(errs, fmt.Errorf("%s: %s with %s", r.name, r.results[c.name].state, c.title))
			}
		}
		if r.proves() {
			proving++
		}
	}
	if t.has(off) && proving == 0 {
		errs = append(errs, errors.New("no test fails without the plugins, so nothing is proved"))
	}
	return errors.Join(errs...)
}
