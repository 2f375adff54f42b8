package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// table returns a table of the calls of each family for each happening. "2 + 1" means two mutating calls and one
// validating call.
func table(families []string, all map[string]counts) string {
	var b strings.Builder
	b.WriteString("| |")
	for _, family := range families {
		b.WriteString(" `" + family + "` |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(families)) + "\n")
	for _, h := range happenings() {
		b.WriteString("| " + h.name + " |")
		for _, family := range families {
			m, v := all[h.name][family+" mutate"], all[h.name][family+" validate"]
			if m+v == 0 {
				b.WriteString(" 0 |")
				continue
			}
			fmt.Fprintf(&b, " %d + %d |", m, v)
		}
		b.WriteString("\n")
	}
	return b.String()
}

const (
	callsBegin = "<!-- Written by: go test ./... -run TestCalls -update, in test/e2e -->\n"
	callsEnd   = "<!-- The end of what is written -->\n"
)

// document returns the documented tables. If the tables are to be updated, document writes them first.
func document(t *testing.T, tables string) string {
	t.Helper()
	path := filepath.Join("..", "..", "docs", "operations.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, found1 := strings.Cut(string(text), callsBegin)
	was, tail, found2 := strings.Cut(rest, callsEnd)
	if !found1 || !found2 {
		t.Fatalf("%s has no place for the tables", path)
	}
	if !*update {
		return was
	}
	if err := os.WriteFile(path, []byte(head+callsBegin+tables+callsEnd+tail), 0o600); err != nil {
		t.Fatal(err)
	}
	return tables
}

var number = regexp.MustCompile(`\d+`)

// compareTables fails the test if the tables have different happenings or families. A count may differ from the
// documented count by the noise of its family or by half of the documented count, because the number of status updates
// by controllers depends on timing.
func compareTables(t *testing.T, documented, counted string, families []string, noise func(family string) int) {
	t.Helper()
	have, want := strings.Split(strings.TrimSpace(counted), "\n"), strings.Split(strings.TrimSpace(documented), "\n")
	if len(have) != len(want) || have[0] != want[0] {
		t.Fatalf("The documented table is another one. Run the test with -update. It counted:\n%s", counted)
	}
	for i := 2; i < len(have); i++ {
		got, was := strings.Split(have[i], "|"), strings.Split(want[i], "|")
		if len(got) != len(was) || got[1] != was[1] {
			t.Fatalf("The documented table has %q, want %q. Run the test with -update.", want[i], have[i])
		}
		for j, family := range families {
			n, m := sum(t, got[j+2]), sum(t, was[j+2])
			if most := max(noise(family), m/2); n < m-most || n > m+most {
				t.Errorf("%s: the family %s was called%s times, documented is%s", got[1], family, got[j+2], was[j+2])
			}
		}
	}
}

func sum(t *testing.T, cell string) int {
	t.Helper()
	total := 0
	for _, digits := range number.FindAllString(cell, -1) {
		n, err := strconv.Atoi(digits)
		if err != nil {
			t.Fatal(err)
		}
		total += n
	}
	return total
}
