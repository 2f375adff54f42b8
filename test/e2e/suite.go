// Package e2e runs the postern binary against real control planes. It is the framework of the end-to-end tests:
// it lends control planes to tests, starts Posterns as child processes, and provides clients, proxies and
// third-party webhooks. See README.md.
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
	"github.com/postern-dev/postern/test/controlplane/postern"
)

// Suite holds the binary under test and the control planes that the tests of a package share. All Posterns register
// webhook configurations with the same names. Therefore a control plane is lent to one test at a time, and each of
// several parallel tests has its own control plane.
type Suite struct {
	options controlplane.Options

	alone sync.Mutex // held by a test that keeps the processors busy

	mu sync.Mutex
	// free holds the control planes that no test uses.
	free []*Cluster

	once  sync.Once
	paths paths
	err   error // the error of the build
}

// paths are the paths of the module and of the binary under test.
type paths struct {
	module string // the folder of Postern's own module
	dir    string // the temporary folder of the suite, which Stop removes; empty until build creates it
	binary string
	// plugins are the names of all plugins of the binary.
	plugins []string
}

// NewSuite returns a suite without control planes. Lend starts one if no control plane is free, so there are as many as
// tests run at the same time (go test -parallel).
func NewSuite(o controlplane.Options) *Suite { return &Suite{options: o} }

// binaryVariable is the environment variable with the path of the binary to test. If it is set, no binary is built.
const binaryVariable = "POSTERN_BINARY"

// build builds the binary with the flags of a release.
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
		p.plugins, err = postern.Plugins(ctx, p.binary)
		return p, err
	}
	p.binary = filepath.Join(p.dir, "postern")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", p.binary, "./cmd/postern") //nolint:gosec // the name is ours
	cmd.Dir = p.module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return p, fmt.Errorf("building postern: %w:\n%s", err, out)
	}
	p.plugins, err = postern.Plugins(ctx, p.binary)
	return p, err
}

// Lend lends the test a control plane with the namespace postern-system. Terminating namespaces are the only objects
// of earlier tests in it. The control plane is returned to the suite when the test ends.
func (s *Suite) Lend(tb testing.TB) *Cluster {
	tb.Helper()
	c := s.take()
	if c == nil {
		var err error
		if c, err = s.start(tb, s.options); err != nil {
			tb.Fatalf("Starting a control plane: %v", err)
		}
	}
	tb.Cleanup(func() {
		if err := c.giveBack(tb); err != nil {
			tb.Errorf("Cleaning up after the test: %v", err)
			// The state of the control plane is unknown, so no other test may use it.
			if err := c.Stop(); err != nil {
				tb.Errorf("Stopping the control plane: %v", err)
			}
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.free = append(s.free, c)
	})
	c.install(tb)
	return c
}

// Alone returns when no other test that called Alone runs. A test calls it before Lend if its clients keep the processors
// busy: several such tests at the same time slow each other down until requests time out.
func (s *Suite) Alone(tb testing.TB) {
	tb.Helper()
	s.alone.Lock()
	tb.Cleanup(s.alone.Unlock)
}

// take takes a free control plane, or returns nil.
func (s *Suite) take() *Cluster {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.free) == 0 {
		return nil
	}
	c := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	return c
}

// Start starts a control plane for this test alone. Tests use Start if they need specific flags.
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
	for _, c := range s.free {
		errs = append(errs, c.Stop())
	}
	if s.paths.dir != "" {
		errs = append(errs, os.RemoveAll(s.paths.dir))
	}
	return errors.Join(errs...)
}
