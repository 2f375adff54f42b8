// Command controlplane builds, starts and stops a Kubernetes control plane on this machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/postern-dev/postern/test/controlplane"
)

const usage = `Usage:
  controlplane build [-node] [-version V]
      build the binaries that are not built yet; with -node also those of a node
  controlplane start [-controller-manager] [-dir D] [-version V] [-- kube-apiserver flags]
      start a control plane, and stop it on an interrupt
  controlplane path [-version V]
      print the folder that holds the binaries
`

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		os.Exit(1)
	}
}

// run runs the command. It writes the output for scripts to out, and all other messages to progress.
func run(ctx context.Context, args []string, out, progress io.Writer) error {
	if len(args) == 0 {
		return fmt.Errorf("no command given\n%s", usage)
	}
	o := controlplane.Options{Progress: progress}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.SetOutput(progress)
	flags.Usage = func() { _, _ = io.WriteString(progress, usage) }
	flags.StringVar(&o.Version, "version", controlplane.DefaultVersion, "the version of Kubernetes")
	node := false
	if args[0] == "build" {
		flags.BoolVar(&node, "node", false, "build the binaries of a node as well")
	}
	if args[0] == "start" {
		flags.BoolVar(&o.ControllerManager, "controller-manager", false, "start kube-controller-manager as well")
		flags.StringVar(&o.Dir, "dir", "", "the folder of the state, kept at the end; a temporary one if empty")
	}
	if err := flags.Parse(args[1:]); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	if args[0] != "start" && flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q\n%s", flags.Arg(0), usage)
	}
	switch args[0] {
	case "build":
		return build(ctx, o, node)
	case "path":
		dir, err := controlplane.BinaryDir(o.Version)
		if err == nil {
			_, err = fmt.Fprintln(out, dir)
		}
		return err
	case "start":
		o.APIServerFlags = flags.Args()
		return start(ctx, o, out)
	default:
		return fmt.Errorf("unknown command %q\n%s", args[0], usage)
	}
}

func build(ctx context.Context, o controlplane.Options, node bool) error {
	names := controlplane.AllBinaries()
	if node {
		names = append(names, controlplane.NodeBinaries()...)
		if _, err := controlplane.BuildRuntime(ctx, o.Progress); err != nil {
			return err
		}
	}
	_, err := controlplane.Build(ctx, o.Version, o.Progress, names...)
	return err
}

func start(ctx context.Context, o controlplane.Options, out io.Writer) (err error) {
	c, err := controlplane.Start(ctx, o)
	if err != nil {
		return err
	}
	if _, err = fmt.Fprintf(out, "export KUBECONFIG=%s\n", c.Kubeconfig(controlplane.Admin)); err == nil {
		err = c.Wait(ctx)
	}
	// Wait and Stop both report a server that exited.
	if stopErr := c.Stop(); err == nil {
		err = stopErr
	}
	return err
}
