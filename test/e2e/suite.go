// Package e2e runs the postern binary against real control planes. It is what end-to-end tests have in
// common: control planes that are lent to tests, Posterns as child processes, clients, proxies and webhooks
// of others. See README.md.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/postern-dev/postern/test/controlplane"
)

// Suite is what the tests of a package share: the binary under test, and a few control planes. The names of
// Postern's webhook configurations are the same whoever registers them, so a control plane is lent to one
// test at a time, and tests that run in parallel have one each.
type Suite struct {
	options controlplane.Options
	// free holds the control planes that no test has, nil for one that has not been started yet.
	free chan *Cluster

	once  sync.Once
	paths paths
	err   error // that of building
}

// paths are where the parts of the product are.
type paths struct {
	module string // the folder of Postern's own module
	dir    string // our own folder, which Stop removes; empty until there is one
	binary string
}

// NewSuite returns a suite of so many control planes. Each is started when a test first needs it.
func NewSuite(controlPlanes int, o controlplane.Options) *Suite {
	s := &Suite{options: o, free: make(chan *Cluster, controlPlanes)}
	for range controlPlanes {
		s.free <- nil
	}
	return s
}

// binaryVariable names a binary that is tested in place of one that is built.
const binaryVariable = "POSTERN_BINARY"

// build builds the binary as it is released.
func build(ctx context.Context) (paths, error) {
	var p paths
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/postern-dev/postern").Output()
	if err != nil {
		return p, fmt.Errorf("looking for Postern's module: %w", err)
	}
	p.module = strings.TrimSpace(string(out))
	if p.dir, err = os.MkdirTemp("", "postern-e2e-"); err != nil {
		return p, err
	}
	if p.binary = os.Getenv(binaryVariable); p.binary != "" {
		return p, nil
	}
	p.binary = filepath.Join(p.dir, "postern")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", p.binary, "./cmd/postern") //nolint:gosec // the name is ours
	cmd.Dir = p.module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return p, fmt.Errorf("building postern: %w:\n%s", err, out)
	}
	return p, nil
}

// Lend gives the test a control plane with the namespace postern-system and nothing of any other test but
// namespaces that are on their way out. The next test gets it when this one ends.
func (s *Suite) Lend(tb testing.TB) *Cluster {
	tb.Helper()
	c := <-s.free
	if c == nil {
		var err error
		if c, err = s.start(tb, s.options); err != nil {
			s.free <- nil
			tb.Fatalf("Starting a control plane: %v", err)
		}
	}
	tb.Cleanup(func() {
		if err := c.giveBack(tb); err != nil {
			tb.Errorf("Cleaning up after the test: %v", err)
			// What the next test would find there is anybody's guess.
			if err := c.Stop(); err != nil {
				tb.Errorf("Stopping the control plane: %v", err)
			}
			c = nil
		}
		s.free <- c
	})
	c.install(tb)
	return c
}

// Start starts a control plane for this test alone, for tests that need one with flags of its own.
func (s *Suite) Start(tb testing.TB, o controlplane.Options) *Cluster {
	tb.Helper()
	c, err := s.start(tb, o)
	if err != nil {
		tb.Fatalf("Starting a control plane: %v", err)
	}
	tb.Cleanup(func() {
		c.checkRefusals(tb)
		c.reportFailure(tb)
		if err := c.Stop(); err != nil {
			tb.Errorf("Stopping the control plane: %v", err)
		}
	})
	c.install(tb)
	return c
}

// Stop stops the control planes and removes the binary. All tests must have ended.
func (s *Suite) Stop() error {
	var errs []error
	for range cap(s.free) {
		if c := <-s.free; c != nil {
			errs = append(errs, c.Stop())
		}
	}
	if s.paths.dir != "" {
		errs = append(errs, os.RemoveAll(s.paths.dir))
	}
	return errors.Join(errs...)
}
