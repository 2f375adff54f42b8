// Command upstream runs parts of Kubernetes' own end-to-end tests three times: with the admission plugins of
// kube-apiserver, without these plugins, and without them but with Postern. See README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/postern-dev/postern/test/controlplane"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// A second signal ends the program at once.
	context.AfterFunc(ctx, stop)
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = run(ctx, o, os.Stdout, os.Stderr)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "upstream:", err)
		os.Exit(1)
	}
}

// options are the flags of the command.
type options struct {
	groups  []group
	columns []column
	postern string
	flags   []string // further flags of Postern
	version string
	dir     string // empty: a temporary folder
	procs   int
	timeout time.Duration
	build   bool
	print   bool
}

func parse(args []string) (options, error) {
	var o options
	var focus, columns string
	flags := flag.NewFlagSet("upstream", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), "Usage: upstream [flags] [-- flags of Postern]\n")
		flags.PrintDefaults()
	}
	flags.StringVar(&focus, "focus", "", "run only these `groups`, A,B, of "+strings.Join(groupNames(groups()), ", "))
	flags.StringVar(&columns, "columns", "", "run only these `columns`, A,B, of "+strings.Join(columnNames(allColumns()), ", "))
	flags.StringVar(&o.postern, "postern", "bin/postern", "Postern's `binary`")
	flags.StringVar(&o.version, "version", controlplane.DefaultVersion, "the `version` of Kubernetes")
	flags.StringVar(&o.dir, "dir", "", "the `folder` for logs and reports, which is kept; a temporary one if empty")
	flags.IntVar(&o.procs, "procs", 8, "tests that run at once")
	flags.DurationVar(&o.timeout, "timeout", time.Hour, "the time limit for one column")
	flags.BoolVar(&o.build, "build", false, "only build the binaries that are not built yet")
	flags.BoolVar(&o.print, "print", false, "run nothing, and print the table of the reports that -dir has")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.flags = flags.Args(); len(o.flags) > 0 && !strings.HasPrefix(o.flags[0], "-") {
		return o, fmt.Errorf("unexpected argument %q", o.flags[0])
	}
	if o.print && o.dir == "" {
		return o, errors.New("-print needs -dir")
	}
	var err error
	if o.groups, err = choose(groups(), focus, func(g group) string { return g.name }); err != nil {
		return o, fmt.Errorf("-focus: %w", err)
	}
	if o.columns, err = choose(allColumns(), columns, func(c column) string { return c.name }); err != nil {
		return o, fmt.Errorf("-columns: %w", err)
	}
	return o, nil
}

// choose returns the items that the comma-separated list names, in the order of all. An empty list chooses all.
func choose[T any](all []T, list string, name func(T) string) ([]T, error) {
	if list == "" {
		return all, nil
	}
	wanted := map[string]bool{}
	for word := range strings.SplitSeq(list, ",") {
		wanted[word] = true
	}
	var chosen []T
	for _, item := range all {
		if wanted[name(item)] {
			chosen = append(chosen, item)
			delete(wanted, name(item))
		}
	}
	for word := range wanted {
		return nil, fmt.Errorf("there is no %q", word)
	}
	return chosen, nil
}
