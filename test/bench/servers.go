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

// startTimeout bounds the time until a server answers.
const startTimeout = 30 * time.Second

// server is a measured process.
type server struct {
	name string
	path string
	// patches means that the server patches the pull policies. Otherwise the server only allows.
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
	nameQuota    = "ResourceQuota"
)

// servers returns the servers to measure, not started yet.
func (b *bench) servers() []*server {
	floor := filepath.Join(b.dir, "floor")
	peer := filepath.Join(b.dir, "peer")
	list := []*server{
		{name: nameFloor, path: "/", command: func(address string) []string {
			return []string{floor, "-address", address, "-cert", b.certFile(), "-key", b.keyFile()}
		}},
		{name: namePostern, path: "/pods/mutate", patches: true, command: b.postern(b.posternBinary(), "AlwaysPullImages")},
		{name: namePeer, path: "/mutate", patches: true, command: func(address string) []string {
			return []string{peer, "-address", address, "-cert", b.certFile(), "-key", b.keyFile()}
		}},
	}
	if b.baseline != "" {
		list = append(list, &server{name: nameBaseline, path: "/pods/mutate", patches: true, command: b.postern(b.baseline, "AlwaysPullImages")})
	}
	if b.quota {
		list = append(list, &server{name: nameQuota, path: "/quota/validate", command: b.postern(b.posternBinary(), "ResourceQuota")})
	}
	return list
}

// postern returns the command line of Postern with one plugin. The webhook URL is Postern's own
// address, because Postern registers only after it has reached itself.
func (b *bench) postern(binary, plugin string) func(address string) []string {
	return func(address string) []string {
		host, port, _ := strings.Cut(address, ":")
		return []string{
			binary, "serve", "--admission-control=" + plugin, "--kubeconfig=" + b.kubeconfig(),
			"--bind-address=" + host, "--secure-port=" + port, "--health-bind-address=", "--webhook-url=https://" + address,
			"--disable-http2-serving=false",
			"--tls-cert-file=" + b.certFile(), "--tls-private-key-file=" + b.keyFile(), "--ca-bundle-file=" + b.caFile(),
		}
	}
}

// start starts the server. The server is killed when ctx is done.
func (s *server) start(ctx context.Context) error {
	address, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	s.address = address
	args := s.command(address)
	s.cmd = exec.CommandContext(ctx, args[0], args[1:]...) //nolint:gosec // built here
	// All servers have the same environment, without variables that tune Go.
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

// freeAddress returns a local address on which no program listens.
func freeAddress(ctx context.Context) (string, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("looking for a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// wait waits until a killed server has exited.
func (s *server) wait() {
	if s.ended != nil {
		<-s.ended
	}
}
