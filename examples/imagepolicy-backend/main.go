// Command imagepolicy-backend is a backend of the admission plugin ImagePolicyWebhook. It allows the images of some
// registries, and requires digests.
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
	"strings"
	"syscall"
)

const usage = `Usage:
  imagepolicy-backend certificates --dir=DIR --server=HOST[:PORT]
  imagepolicy-backend serve --dir=DIR --allow=REGISTRY,...
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "imagepolicy-backend:", err)
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
		server := flags.String("server", "", "the `host`, and the port unless it is 443, at which Postern reaches the backend")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		if *server == "" {
			return errors.New("--server is missing")
		}
		return makeCertificates(*dir, *server)
	case "serve":
		address := flags.String("address", ":8443", "the `address` to listen at")
		allow := flags.String("allow", "", "the allowed registries and repositories, such as `ghcr.io/acme,registry.k8s.io`")
		digest := flags.Bool("require-digest", true, "deny images without a digest")
		exempt := flags.String("exempt-namespaces", "", "the `namespaces` in which every image may run")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		p, err := newPolicy(list(*allow), *digest, list(*exempt))
		if err != nil {
			return fmt.Errorf("--allow: %w", err)
		}
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", *address)
		if err != nil {
			return fmt.Errorf("--address: %w", err)
		}
		return serve(ctx, listener, files{cert: *dir + "/server.crt", key: *dir + "/server.key", clientCA: *dir + "/ca.crt"}, p)
	}
	return fmt.Errorf("unknown command %q\n%s", args[0], usage)
}

func list(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}
