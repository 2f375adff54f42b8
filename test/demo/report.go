package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/postern-dev/postern/test/demo/table"
)

const tableWidth = 120

// report prints the table of results. Below the table it prints the full messages and the differences from
// the expectations.
func (d *demo) report(results []*result) error {
	rows := [][]string{{"EXAMPLE", "WHAT", "SENT", "THE CLUSTER HAS", "RESULT"}}
	for _, r := range results {
		rows = append(rows, r.rows()...)
	}
	fmt.Fprintln(d.out)
	if err := table.Write(d.out, tableWidth, rows); err != nil {
		return fmt.Errorf("writing the table: %w", err)
	}
	for _, r := range results {
		switch {
		case r.said == "":
		case r.stored:
			fmt.Fprintf(d.out, "\n%s was stored with a warning:\n%s\n", r.Name, indent(r.said))
		default:
			fmt.Fprintf(d.out, "\n%s was refused:\n%s\n", r.Name, indent(r.said))
		}
	}
	for _, r := range results {
		if len(r.differs) > 0 {
			fmt.Fprintf(d.out, "\n%s DIFFERS from what its file expects:\n%s\n", r.Name, indent(strings.Join(r.differs, "\n")))
		}
	}
	fmt.Fprintf(d.out, "\n%s\n\n", summary(results))
	return nil
}

// rows returns the lines of the table for one example.
func (r *result) rows() [][]string {
	object := strings.TrimSpace(r.Connect + " " + r.Request.Kind() + " " + r.Request.Name())
	verdict := "ok"
	if len(r.differs) > 0 {
		verdict = "DIFFERS"
	}
	switch {
	case len(r.lacks) > 0:
		return [][]string{{r.Name, object, "", "not applied: needs " + strings.Join(r.lacks, ", "), ""}}
	case !r.stored:
		return [][]string{{r.Name, object, "", "refused (below)", verdict}}
	case len(r.Fields) == 0:
		return [][]string{{r.Name, object, "", "stored", verdict}}
	}
	var rows [][]string
	for i, field := range r.Fields {
		rows = append(rows, []string{"", field.Path, orDash(r.sent[i]), orDash(r.found[i]), ""})
	}
	rows[0][0], rows[0][4] = r.Name, verdict
	return rows
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ")
}

// count prints how many examples were applied, and names the examples that did not meet their expectations.
func count(results []*result) (applied int, differing []string) {
	for _, r := range results {
		if len(r.lacks) == 0 {
			applied++
		}
		if len(r.differs) > 0 {
			differing = append(differing, r.Name)
		}
	}
	return applied, differing
}

func summary(results []*result) string {
	applied, differing := count(results)
	text := fmt.Sprintf("%d of %d examples ended as their files say.", applied-len(differing), applied)
	if rest := len(results) - applied; rest > 0 {
		text += fmt.Sprintf(" %d not applied, because their plugins do not run.", rest)
	}
	return text
}

// judge returns an error unless every applied example met its expectations.
func judge(results []*result) error {
	applied, differing := count(results)
	switch {
	case applied == 0:
		return errors.New("no example was applied")
	case len(differing) > 0:
		return fmt.Errorf("not as expected: %s", strings.Join(differing, ", "))
	}
	return nil
}
