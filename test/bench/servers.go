package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// startTimeout is how long a server may take until it answers.
const startTimeout = 30 * time.Second

// server is one of the processes that are measured.
type server struct {
	name string
	path string
	// patches says that it sets the pull policies; one that does not only allows.
	patches bool
	command func(address string) []string

	address string
	cmd     *exec.Cmd
	log     bytes.Buffer
	ended   chan struct{}
	clients []*client
}

const (
	nameFloor    = "floor"
	namePostern  = "postern"
	namePeer     = "controller-runtime"
	nameBaseline = "baseline"
)

// servers returns the servers to measure, not started yet.
func (b *bench) servers() []*server {
	floor := filepath.Join(b.dir, "floor")
	peer := filepath.Join(b.dir, "peer")
	list := []*server{
		{name: nameFloor, path: "/", command: func(address string) []string {
			return []string{floor, "-address", address, "-cert", b.certFile(), "-key", b.keyFile()}
		}},
		{name: namePostern, path: "/pods/mutate", patches: true, command: b.postern(b.posternBinary())},
		{name: namePeer, path: "/mutate", patches: true, command: func(address string) []string {
			return []string{peer, "-address", address, "-cert", b.certFile(), "-key", b.keyFile()}
		}},
	}
	if b.baseline != "" {
		list = append(list, &server{name: nameBaseline, path: "/pods/mutate", patches: true, command: b.postern(b.baseline)})
	}
	return list
}

// postern is the command line of a Postern. Its webhook URL is its own address:
// it registers only once it reaches itself.
func (b *bench) postern(binary string) func(address string) []string {
	return func(address string) []string {
		host, port, _ := strings.Cut(address, ":")
		return []string{
			binary, "serve", "--admission-control=AlwaysPullImages", "--kubeconfig=" + b.kubeconfig(),
			"--bind-address=" + host, "--secure-port=" + port, "--health-bind-address=", "--webhook-url=https://" + address,
			"--tls-cert-file=" + b.certFile(), "--tls-private-key-file=" + b.keyFile(), "--ca-bundle-file=" + b.caFile(),
		}
	}
}

// start starts the server. It is killed when ctx ends.
func (s *server) start(ctx context.Context) error {
	address, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	s.address = address
	args := s.command(address)
	s.cmd = exec.CommandContext(ctx, args[0], args[1:]...) //nolint:gosec // built here
	// The same environment for all, and nothing in it that tunes Go.
	s.cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	s.cmd.WaitDelay = time.Second
	if err := s.cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", s.name, err)
	}
	s.ended = make(chan struct{})
	go func() {
		defer close(s.ended)
		_ = s.cmd.Wait()
	}()
	return s.awaitPort(ctx)
}

func (s *server) awaitPort(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var d net.Dialer
	for {
		conn, err := d.DialContext(ctx, "tcp", s.address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-s.ended:
			return fmt.Errorf("%s ended at its start:\n%s", s.name, s.log.String())
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", s.name, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// freeAddress returns an address of this machine that nobody listens on.
func freeAddress(ctx context.Context) (string, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("looking for a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// wait waits for the end of a server that was killed.
func (s *server) wait() {
	if s.ended != nil {
		<-s.ended
	}
}
