// Package postern runs Postern as a process beside a control plane, with the permissions that the installer grants.
package postern

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/controlplane/process"
)

const (
	// portAttempts bounds the number of starts that may fail because another program took a port that was
	// free a moment earlier.
	portAttempts = 3
	startTimeout = 30 * time.Second
	pollPeriod   = 50 * time.Millisecond
	stopGrace    = 10 * time.Second
	logLines     = 30
)

// Options configure a Postern.
type Options struct {
	// Binary is the path of the binary.
	Binary string
	// Dir is an existing folder for the log, the kubeconfig and the certificates.
	Dir string
	// Plugins lists the enabled plugins. No other plugin runs.
	Plugins []string
	// Flags are appended to the command line.
	Flags []string
}

// Postern is a running Postern. Stop must be called.
type Postern struct {
	process *process.Process
	log     string
	health  string
}

// Start starts Postern and returns when Postern is ready and has registered all its webhooks. The API server
// observes the registration a moment later.
func Start(ctx context.Context, c *controlplane.ControlPlane, o Options) (*Postern, error) {
	kubeconfig, err := identify(ctx, c, o)
	if err != nil {
		return nil, fmt.Errorf("making an account for postern: %w", err)
	}
	for attempt := 1; ; attempt++ {
		p, err := start(ctx, o, kubeconfig)
		if err == nil {
			return p, nil
		}
		if !errors.Is(err, errPortTaken) || attempt == portAttempts {
			return nil, err
		}
	}
}

var errPortTaken = errors.New("a port is no longer free")

func start(ctx context.Context, o Options, kubeconfig string) (*Postern, error) {
	addresses, err := freeAddresses(ctx, 2)
	if err != nil {
		return nil, err
	}
	p := &Postern{log: filepath.Join(o.Dir, "postern.log"), health: "http://" + addresses[1]}
	p.process, err = process.StartLogged(p.log, nil, o.Binary, args(o, kubeconfig, addresses[0], addresses[1])...)
	if err != nil {
		return nil, err
	}
	if err := p.await(ctx); err != nil {
		tail := process.Tail(p.log, logLines)
		_ = p.process.Stop(stopGrace)
		if strings.Contains(tail, "address already in use") {
			err = errPortTaken
		}
		return nil, fmt.Errorf("starting postern: %w; the end of its log:\n%s", err, tail)
	}
	return p, nil
}

func args(o Options, kubeconfig, secure, health string) []string {
	host, port, _ := strings.Cut(secure, ":")
	return append([]string{
		"--kubeconfig=" + kubeconfig,
		"--cert-dir=" + filepath.Join(o.Dir, "certificates"),
		"--bind-address=" + host,
		"--secure-port=" + port,
		"--health-bind-address=" + health,
		"--webhook-url=https://" + secure,
		"--admission-control=" + strings.Join(o.Plugins, ","),
		// The only replica needs no delay before it shuts down.
		"--shutdown-delay-duration=0s", "--shutdown-connections-duration=1s",
	}, o.Flags...)
}

// freeAddresses returns loopback addresses whose ports are free at the time of the call.
func freeAddresses(ctx context.Context, n int) ([]string, error) {
	var addresses []string
	for range n {
		// All listeners stay open until the last port is found, so that all ports differ.
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("looking for a free port: %w", err)
		}
		defer listener.Close()
		addresses = append(addresses, listener.Addr().String())
	}
	return addresses, nil
}

// Wait returns nil when ctx is done, or an error when Postern exits before that.
func (p *Postern) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-p.process.Done():
		return p.failure()
	}
}

// Stop stops Postern. It returns an error if Postern had already exited.
func (p *Postern) Stop() error {
	if !p.process.Running() {
		return p.failure()
	}
	return p.process.Stop(stopGrace)
}

func (p *Postern) failure() error {
	return fmt.Errorf("postern exited unexpectedly (%s); the end of its log:\n%s", p.process.Exit(), process.Tail(p.log, logLines))
}

// Plugins returns the names of the plugins that a Postern binary contains.
func Plugins(ctx context.Context, binary string) ([]string, error) {
	out, err := output(exec.CommandContext(ctx, binary, "plugins", "-o", "name"))
	if err != nil {
		return nil, err
	}
	names := strings.Fields(out)
	if len(names) == 0 {
		return nil, errors.New("postern plugins names no plugins")
	}
	return names, nil
}

// Version returns the version that a Postern binary reports.
func Version(ctx context.Context, binary string) (string, error) {
	out, err := output(exec.CommandContext(ctx, binary, "version"))
	return strings.TrimSpace(out), err
}
