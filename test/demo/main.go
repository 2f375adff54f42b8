// Command demo starts a Kubernetes control plane and Postern on this machine, applies the examples, and
// reports whether each example met the expectations in its file.
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
		err = run(ctx, o, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	var o options
	var plugins string
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), "Usage: demo [flags] [-- command that builds Postern]\n")
		flags.PrintDefaults()
	}
	flags.BoolVar(&o.stay, "stay", false, "stay up afterwards until an interrupt")
	flags.StringVar(&o.dir, "dir", "", "where state, kubeconfigs and logs go; a temporary folder if empty")
	flags.StringVar(&o.postern, "postern", "bin/postern", "Postern's `binary`")
	flags.StringVar(&o.examples, "examples", "examples", "the `folder` of the examples")
	flags.StringVar(&o.installer, "installer", "installer", "the `folder` of crds")
	flags.StringVar(&o.version, "version", controlplane.DefaultVersion, "the `version` of Kubernetes")
	flags.StringVar(&plugins, "plugins", "", "run these `plugins`, A,B, and only the examples that need no others")
	flags.StringVar(&o.config, "config", "", "Postern's AdmissionConfiguration, a `file`; the examples' own if empty")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if plugins != "" {
		o.plugins = strings.Split(plugins, ",")
	}
	o.command = flags.Args()
	return o, nil
}
