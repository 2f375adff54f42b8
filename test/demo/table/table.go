// Package table lays out text in columns.
package table

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	gap = "  "
	// narrowest is the minimum width of a column that is shrunk.
	narrowest = 8
)

// Write writes rows in aligned columns. The first row has the headings. If the table is wider than its
// limit, Write shrinks the widest columns and wraps their cells. All rows have as many cells as the first.
func Write(w io.Writer, width int, rows [][]string) error {
	widths := columnWidths(width, rows)
	var b strings.Builder
	for _, row := range rows {
		cells := make([][]string, len(row))
		height := 0
		for i, text := range row {
			cells[i] = wrap(text, widths[i])
			height = max(height, len(cells[i]))
		}
		for line := range height {
			var out strings.Builder
			for i, cell := range cells {
				text := ""
				if line < len(cell) {
					text = cell[line]
				}
				fmt.Fprintf(&out, "%-*s%s", widths[i], text, gap)
			}
			b.WriteString(strings.TrimRight(out.String(), " ") + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func columnWidths(width int, rows [][]string) []int {
	widths := make([]int, len(rows[0]))
	total := len(gap) * (len(widths) - 1)
	for _, row := range rows {
		for i, text := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(text))
		}
	}
	for _, w := range widths {
		total += w
	}
	for ; total > width; total-- {
		widest := slices.Max(widths)
		if widest <= narrowest {
			break
		}
		widths[slices.Index(widths, widest)]--
	}
	return widths
}

// wrap breaks a text at blanks, before a dot or after a comma. It breaks a word only if the text has no such
// place.
func wrap(text string, width int) []string {
	var lines []string
	rest := []rune(strings.TrimSpace(text))
	for len(rest) > width {
		at := breakAt(rest, width)
		lines = append(lines, strings.TrimRight(string(rest[:at]), " "))
		rest = []rune(strings.TrimLeft(string(rest[at:]), " "))
	}
	return append(lines, string(rest))
}

// breakAt returns the last place, at most width, where the text may be broken.
func breakAt(text []rune, width int) int {
	for at := width; at > 0; at-- {
		if text[at] == ' ' || text[at] == '.' || text[at-1] == ',' {
			return at
		}
	}
	return width
}
