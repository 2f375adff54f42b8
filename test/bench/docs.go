package main

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The document has the results between two lines for each kind of them.
func borders(kind string) (begin, end []byte) {
	return fmt.Appendf(nil, "<!-- %s: begin -->\n", kind), fmt.Appendf(nil, "<!-- %s: end -->\n", kind)
}

// writeDocs replaces the results in performance.md in a folder, and the plot beside it.
func (r *report) writeDocs(dir string) error {
	var results bytes.Buffer
	results.WriteString("![CPU time of one request as a multiple of the floor](performance.svg)\n\n")
	if err := r.write(&results); err != nil {
		return err
	}
	if err := writeResults(dir, "requests", results.Bytes()); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "performance.svg"), r.plot(plotConnections), 0o644); err != nil { //nolint:gosec // a document
		return fmt.Errorf("writing the plot: %w", err)
	}
	return nil
}

// writeResults replaces the results of a kind in performance.md in a folder.
func writeResults(dir, kind string, results []byte) error {
	name := filepath.Join(dir, "performance.md")
	doc, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("reading the document: %w", err)
	}
	begin, end := borders(kind)
	before, rest, found := bytes.Cut(doc, begin)
	_, after, ended := bytes.Cut(rest, end)
	if !found || !ended {
		return fmt.Errorf("%s lacks the lines %q and %q", name, begin, end)
	}
	doc = bytes.Join([][]byte{before, begin, results, end, after}, nil)
	if err := os.WriteFile(name, doc, 0o644); err != nil { //nolint:gosec // a document
		return fmt.Errorf("writing the document: %w", err)
	}
	return nil
}

// plotConnections is the number of connections of the cells in the plot. A kube-apiserver keeps up to 25 of them.
const plotConnections = 16

// plot returns an SVG with a bar for each server in each cell with a number of connections. The length of a bar is the
// logarithm of the ratio to the floor.
func (r *report) plot(connections int) []byte {
	const left, width, row, most = 230, 480, 18, 200
	var body strings.Builder
	y := 40
	for _, c := range r.Cells {
		if c.Connections != connections {
			continue
		}
		fmt.Fprintf(&body, "<text x=\"10\" y=\"%d\" font-weight=\"bold\">%s, %d bytes</text>\n", y+row/2, html.EscapeString(c.Pod), c.Bytes)
		y += row
		for _, name := range r.names {
			if name == nameFloor {
				continue
			}
			s := c.Ratios[name]
			x := func(ratio float64) int { return left + int(width*math.Log(max(ratio, 1))/math.Log(most)) }
			color := "#8a8f98"
			if strings.HasPrefix(name, "Postern") {
				color = "#2b6cb0"
			}
			fmt.Fprintf(&body, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n", left-6, y+row/2+4, html.EscapeString(name))
			fmt.Fprintf(&body, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\"/>\n", left, y+2, x(s.Median)-left, row-5, color)
			fmt.Fprintf(&body, "<path d=\"M%d %dH%d\" stroke=\"black\"/>\n", x(s.Min), y+row/2, x(s.Max))
			fmt.Fprintf(&body, "<text x=\"%d\" y=\"%d\">%.1f</text>\n", x(max(s.Median, s.Max))+5, y+row/2+4, s.Median)
			y += row
		}
		y += row / 2
	}
	return fmt.Appendf(nil, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" font-size=\"12\">\n"+
		"<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"+
		"<text x=\"10\" y=\"20\">CPU time of one request as a multiple of the floor (logarithmic), %d connections; the line is the spread</text>\n%s</svg>\n",
		left+width+60, y+10, connections, body.String())
}

// versionOf returns the commit that Postern is built from. A path of a binary is returned unchanged.
func versionOf(binary string) string {
	if binary != "" {
		return binary
	}
	out, err := exec.Command("git", "describe", "--always", "--dirty").Output() //nolint:noctx // takes no time
	if err != nil {
		return "of an unknown version"
	}
	return strings.TrimSpace(string(out))
}

// processor returns the name of the processor.
func processor() string {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown processor"
	}
	_, rest, _ := strings.Cut(string(data), "model name")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.Trim(line, "\t :")
}
