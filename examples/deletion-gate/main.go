// Command deletion-gate is a backend of the admission plugin DeletionGate. It runs a command once for each pod that is to
// be deleted, and lets the pod go when the command has succeeded.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

const usage = `Usage:
  deletion-gate certificates --dir=DIR --server=HOST
  deletion-gate serve --dir=DIR --state=DIR -- COMMAND [ARGUMENT...]
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "deletion-gate:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stderr io.Writer) error {
	if len(args) == 0 {
		return fmt.Errorf("want a command\n%s", usage)
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.SetOutput(stderr)
	dir := flags.String("dir", ".", "the `folder` of the certificates")
	switch args[0] {
	case "certificates":
		server := flags.String("server", "", "the `host` at which Postern reaches the backend")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		if *server == "" {
			return errors.New("--server is missing")
		}
		return makeCertificates(*dir, *server)
	case "serve":
		address := flags.String("address", ":8443", "the `address` to listen at")
		state := flags.String("state", "", "the `folder` with the state of the preparations; it must survive a restart")
		limit := flags.Duration("timeout", time.Hour, "how `long` the command may run")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		if *state == "" || flags.NArg() == 0 {
			return fmt.Errorf("want --state and a command\n%s", usage)
		}
		p, err := newPreparations(ctx, *state, flags.Args(), *limit)
		if err != nil {
			return fmt.Errorf("--state: %w", err)
		}
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", *address)
		if err != nil {
			return fmt.Errorf("--address: %w", err)
		}
		return serve(ctx, listener, files{
			cert: filepath.Join(*dir, "server.crt"), key: filepath.Join(*dir, "server.key"), clientCA: filepath.Join(*dir, "ca.crt"),
		}, p)
	}
	return fmt.Errorf("unknown command %q\n%s", args[0], usage)
}
