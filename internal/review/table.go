package review

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"k8s.io/client-go/tools/cache"

	"github.com/postern-dev/postern/internal/documents"
	"github.com/postern-dev/postern/internal/shorttext"
)

// maxTitle is the longest name of an object to which the column of names is widened, in characters.
const maxTitle = 72

// maxLine bounds a line, in bytes.
const maxLine = 8 << 10

// WriteTable writes the results for people: a line for each, and below it what plugins say.
func WriteTable(out io.Writer, results []Result) error {
	w := bufio.NewWriter(out)
	width := 0
	for _, r := range results {
		width = max(width, min(utf8.RuneCountInString(r.title()), maxTitle))
	}
	for _, r := range results {
		verdict := string(r.Verdict)
		if r.Changed {
			verdict += ", changed"
		}
		fmt.Fprintf(w, "%-17s  %-*s  %s\n", verdict, width, r.title(), documents.Position{File: r.File, Line: r.Line})
		for _, said := range r.lines() {
			indent := "    "
			for line := range strings.Lines(said) {
				fmt.Fprintln(w, indent+printable(strings.TrimSuffix(line, "\n")))
				indent = "      "
			}
		}
	}
	fmt.Fprintln(w, Summary(results))
	return w.Flush()
}

// printable returns a text in which a terminal sees no control characters: whoever writes manifests chooses names and messages.
func printable(text string) string { return shorttext.Line(text, maxLine) }

// title names the object of a result, and where it comes from.
func (r *Result) title() string {
	name := r.Kind + " " + cache.NewObjectName(r.Namespace, r.Name).String()
	switch {
	case r.Of == "":
	case r.Path == "":
		name += " of " + r.Of
	default:
		name += " from " + r.Path + " of " + r.Of
	}
	return printable(name)
}

// lines returns what plugins say about the object of a result.
func (r *Result) lines() []string {
	var out []string
	for _, d := range r.Denials {
		by := d.Plugin
		if by == "" {
			by = "API server"
		}
		out = append(out, fmt.Sprintf("%s: %s", by, d.Message))
	}
	for _, m := range r.Unknown {
		text := "not known: " + m.What
		if m.Plugin != "" {
			text = m.Plugin + ": " + text
		}
		out = append(out, text)
	}
	for _, warning := range r.Warnings {
		out = append(out, "warning: "+warning)
	}
	return out
}

// Summary counts the results in one line.
func Summary(results []Result) string {
	var objects int
	verdicts := map[Verdict]int{}
	for _, r := range results {
		if r.Of == "" {
			objects++
		}
		verdicts[r.Verdict]++
	}
	return fmt.Sprintf("%s, %s that controllers make: %d admitted, %d denied, %d unknown.",
		count(objects, "object", "objects"), count(len(results)-objects, "object", "objects"), verdicts[Admitted], verdicts[Denied], verdicts[Unknown])
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
