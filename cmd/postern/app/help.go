package app

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/postern-dev/postern/pkg/admissions"
)

// defaultWidth is the width of the help in an output that is no terminal.
const defaultWidth = 80

// printHelp prints the help of a command, with its flags in sections, as kube-apiserver does.
func printHelp(cmd *cobra.Command, sections *cliflag.NamedFlagSets) {
	out := cmd.OutOrStdout()
	width := columns(out)
	fmt.Fprintf(out, "%s\n\nUsage:\n  %s\n", wrap(cmp.Or(cmd.Long, cmd.Short), width), cmd.UseLine())
	if cmd.Example != "" {
		fmt.Fprintf(out, "\nExamples:\n%s\n", cmd.Example)
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprint(out, "\nCommands:\n\n")
	}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			fmt.Fprintln(out, wrap(fmt.Sprintf("  %-13s %s", sub.Name(), sub.Short), width))
		}
	}
	var flags strings.Builder
	cliflag.PrintSections(&flags, *sections, width)
	for line := range strings.Lines(flags.String()) {
		fmt.Fprintln(out, strings.TrimRight(line, " \n"))
	}
}

// sectionOf returns the flags of a command without sections as one section.
func sectionOf(cmd *cobra.Command) *cliflag.NamedFlagSets {
	sections := &cliflag.NamedFlagSets{}
	sections.FlagSet("command").AddFlagSet(cmd.NonInheritedFlags())
	return sections
}

// columns returns the width of a terminal. The width for any other output is that of the environment variable COLUMNS,
// or else defaultWidth.
func columns(out io.Writer) int {
	if file, ok := out.(*os.File); ok {
		if width, _, err := term.GetSize(int(file.Fd())); err == nil {
			return width
		}
	}
	if width, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && width > 0 {
		return width
	}
	return defaultWidth
}

// wrap breaks lines that are longer than width between two words. A continuation has the indentation of its line or, in
// a line with two columns, that of the second column, which begins after two blanks.
func wrap(text string, width int) string {
	var out []string
	for line := range strings.SplitSeq(text, "\n") {
		body := strings.TrimLeft(line, " ")
		indent := len(line) - len(body)
		if i := strings.LastIndex(body, "  "); i >= 0 {
			indent += i + len("  ")
		}
		for len(line) > width {
			i := strings.LastIndex(line[:width+1], " ")
			if i <= indent {
				// The first word is longer than a line.
				if i = strings.Index(line[indent:], " ") + indent; i < indent {
					break
				}
			}
			out = append(out, line[:i])
			line = strings.Repeat(" ", indent) + line[i+1:]
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

// describeFamilies lists the plugins of each family in one line.
func describeFamilies(families admissions.List) string {
	longest := 0
	for _, f := range families {
		longest = max(longest, len(f.Name))
	}
	var b strings.Builder
	for _, f := range families {
		var names []string
		for _, p := range f.Plugins {
			names = append(names, p.Name)
		}
		fmt.Fprintf(&b, "\n  %-*s  %s", longest, f.Name, strings.Join(names, ", "))
	}
	return b.String()
}
