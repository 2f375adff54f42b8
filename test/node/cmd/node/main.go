//go:build linux

// Command node builds, starts and stops a Kubernetes cluster of one real node on this machine.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"github.com/postern-dev/postern/test/node"
)

const usage = `Usage:
  node check                                say what this machine lacks
  node packages                             install the missing Debian packages, as root
  node build                                make the binaries that are not there yet
  node up [FOLDER]                          start a node, and remove it on an interrupt
  node exec FOLDER COMMAND...               run a command on the node, such as ctr, nft or ip
  node push FOLDER NAME:TAG PATH=FILE...    push an image of static programs; the first is the entry point
  node down FOLDER                          remove the node, but keep its logs
`

func main() {
	if code, child := node.Child(); child {
		os.Exit(code)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	cancel()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		os.Exit(exit.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "node:", err)
		os.Exit(1)
	}
}

// run runs the command. It writes the output for scripts to out, and all other messages to progress.
func run(ctx context.Context, args []string, out, progress io.Writer) error {
	if len(args) == 0 {
		return fmt.Errorf("no command given\n%s", usage)
	}
	switch command, rest := args[0], args[1:]; {
	case command == "check" && len(rest) == 0:
		if missing := node.Missing(ctx); len(missing) > 0 {
			return errors.New(strings.Join(missing, "\nnode: "))
		}
		return nil
	case command == "packages" && len(rest) == 0:
		return node.InstallPackages(ctx, func(text string) { _, _ = fmt.Fprintln(progress, "node:", text) })
	case command == "build" && len(rest) == 0:
		_, _, err := node.Build(ctx, progress)
		return err
	case command == "up" && len(rest) <= 1:
		return up(ctx, node.Options{Dir: strings.Join(rest, ""), Progress: progress}, out)
	case command == "exec" && len(rest) >= 2:
		return onNode(ctx, rest[0], rest[1:])
	case command == "push" && len(rest) >= 3:
		return push(ctx, rest)
	case command == "down" && len(rest) == 1:
		return node.Down(rest[0])
	}
	return fmt.Errorf("not a command: %s\n%s", strings.Join(args, " "), usage)
}

func up(ctx context.Context, o node.Options, out io.Writer) error {
	n, err := node.Start(ctx, o)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "export KUBECONFIG=%s PATH=\"%s:$PATH\"\n", n.Kubeconfig(), n.Programs())
	if err == nil {
		err = n.Wait(ctx)
	}
	return errors.Join(err, n.Stop())
}

func onNode(ctx context.Context, dir string, args []string) error {
	n, err := node.Open(dir)
	if err != nil {
		return err
	}
	cmd, err := n.Exec(ctx, args...)
	if err != nil {
		return err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}

func push(ctx context.Context, args []string) error {
	n, err := node.Open(args[0])
	if err != nil {
		return err
	}
	var files []node.File
	for _, arg := range args[2:] {
		path, from, found := strings.Cut(arg, "=")
		if !found {
			return fmt.Errorf("%q is not PATH=FILE", arg)
		}
		files = append(files, node.File{Path: path, From: from})
	}
	return n.Push(ctx, args[1], files...)
}
