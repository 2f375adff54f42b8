// Package controlplane builds and starts a real Kubernetes control plane on this machine: etcd and
// kube-apiserver, kube-controller-manager where it is asked for, and kubectl to talk to them. There are
// no nodes, so pods are admitted and stored but never run. See README.md.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	// portAttempts bounds the starts that are lost to another program taking a port that was free a
	// moment earlier.
	portAttempts = 3
	// stopGrace is how long a server may take to stop by itself. With clients still connected,
	// kube-apiserver takes a second or two.
	stopGrace = 10 * time.Second
	logLines  = 15
)

// Options say what to start. The zero value is a control plane of DefaultVersion in a temporary folder.
type Options struct {
	// Version of Kubernetes, such as v1.36.3; DefaultVersion if empty. It has no effect where
	// KUBEBUILDER_ASSETS provides the binaries.
	Version string
	// Dir holds the state, the kubeconfigs and the logs. A control plane that is started in the folder
	// of a stopped one has its objects. If empty, it is a temporary folder that Stop removes.
	Dir string
	// ControllerManager starts kube-controller-manager as well. Without it no namespace gets a default
	// service account, so the admission plugin ServiceAccount is switched off, unless APIServerFlags
	// names it in --enable-admission-plugins.
	ControllerManager bool
	// APIServerFlags are further flags of kube-apiserver. A flag given here replaces ours of that name,
	// but ServiceAccount stays among the disabled admission plugins as said above.
	APIServerFlags []string
	// Progress is told what is built and how far it is; nothing is written once all is built.
	Progress io.Writer
}

// ControlPlane is a running control plane. Stop must be called.
type ControlPlane struct {
	options   Options
	dir       string
	temporary bool
	binaries  string
	tokens    map[User]string
	etcdURL   string
	serverURL string
	client    *http.Client
	processes []*process
	exited    chan *process
	stopOnce  sync.Once
	stopErr   error
}

// Start builds what is not built yet, starts the servers and returns when they are ready: the API server
// says so, and the namespace default exists (with its service account, if the controller manager runs).
// ctx bounds the start only.
func Start(ctx context.Context, o Options) (*ControlPlane, error) {
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	names := []string{etcd, kubeAPIServer, kubectl}
	if o.ControllerManager {
		names = append(names, kubeControllerManager)
	}
	binaries, err := Build(ctx, o.Version, o.Progress, names...)
	if err != nil {
		return nil, err
	}
	c := &ControlPlane{options: o, binaries: binaries}
	if err := c.prepare(); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	for attempt := 1; ; attempt++ {
		err = c.boot(ctx)
		if err == nil {
			return c, nil
		}
		lost := c.portTaken()
		stopErr := c.stopProcesses()
		if !lost || attempt == portAttempts {
			return nil, errors.Join(err, stopErr, c.Stop())
		}
	}
}

// prepare makes the folder and what does not depend on the ports.
func (c *ControlPlane) prepare() error {
	dir := c.options.Dir
	if dir == "" {
		temporary, err := os.MkdirTemp("", "postern-controlplane-")
		if err != nil {
			return err
		}
		dir, c.temporary = temporary, true
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	c.dir = dir
	// Tokens and keys lie here.
	if err := os.MkdirAll(c.logDir(), 0o700); err != nil {
		return err
	}
	if err := writeServiceAccountKey(c.serviceAccountKey()); err != nil {
		return err
	}
	c.tokens = newTokens()
	return writeTokens(c.tokenFile(), c.tokens)
}

// boot starts the servers one after the other, each when the one it needs is ready.
func (c *ControlPlane) boot(ctx context.Context) error {
	ports, err := freePorts(ctx, 2)
	if err != nil {
		return err
	}
	c.exited = make(chan *process, 3)
	c.client = nil
	c.etcdURL = fmt.Sprintf("http://127.0.0.1:%d", ports[0])
	c.serverURL = fmt.Sprintf("https://127.0.0.1:%d", ports[1])
	if err := c.run(etcd, c.etcdArgs()); err != nil {
		return err
	}
	if err := c.await(ctx, c.etcdReady); err != nil {
		return err
	}
	if err := c.run(kubeAPIServer, c.apiServerArgs(ports[1])); err != nil {
		return err
	}
	if err := c.await(ctx, c.apiServerReady); err != nil {
		return err
	}
	if !c.options.ControllerManager {
		return nil
	}
	if err := c.run(kubeControllerManager, c.controllerManagerArgs()); err != nil {
		return err
	}
	return c.await(ctx, c.controllerManagerReady)
}

func (c *ControlPlane) run(name string, args []string) error {
	p, err := startProcess(name, filepath.Join(c.binaries, name), args, c.logDir(), c.exited)
	if err != nil {
		return err
	}
	c.processes = append(c.processes, p)
	return nil
}

// portTaken says that a server gave up because its port was no longer free.
func (c *ControlPlane) portTaken() bool {
	for _, p := range c.processes {
		if !p.running() && strings.Contains(p.tail(logLines), "address already in use") {
			return true
		}
	}
	return false
}

// Wait returns nil when ctx is done, or an error when one of the servers exits before that.
func (c *ControlPlane) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case p := <-c.exited:
		return p.failure()
	}
}

// Stop stops every server and removes the folder if it is a temporary one. It returns an error if a
// server had exited by itself before. It may be called more than once.
func (c *ControlPlane) Stop() error {
	c.stopOnce.Do(func() {
		c.stopErr = c.stopProcesses()
		if c.temporary {
			c.stopErr = errors.Join(c.stopErr, os.RemoveAll(c.dir))
		}
	})
	return c.stopErr
}

// stopProcesses stops the servers in the reverse order of their start, so that none misses another.
func (c *ControlPlane) stopProcesses() error {
	var errs []error
	for len(c.processes) > 0 {
		last := len(c.processes) - 1
		errs = append(errs, c.processes[last].stop(stopGrace))
		c.processes = c.processes[:last]
	}
	return errors.Join(errs...)
}

// URL is where the API server listens, https://127.0.0.1:<port>.
func (c *ControlPlane) URL() string { return c.serverURL }

// Client trusts the API server's certificate. Requests need a token of their own, see Token.
func (c *ControlPlane) Client() *http.Client { return c.client }

// Token is the bearer token of a user.
func (c *ControlPlane) Token(u User) string { return c.tokens[u] }

// Kubeconfig is the path of a kubeconfig file for a user. It holds all it needs, so it may be copied.
func (c *ControlPlane) Kubeconfig(u User) string {
	return filepath.Join(c.dir, "kubeconfig-"+strings.ReplaceAll(string(u), ":", "-"))
}

// CAFile is the path of the certificate of the authority that has signed the API server's.
func (c *ControlPlane) CAFile() string { return filepath.Join(c.dir, "ca.crt") }

// Kubectl is kubectl as that user, ready to run. It is of the control plane's own version.
func (c *ControlPlane) Kubectl(ctx context.Context, u User, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(c.binaries, kubectl), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig(u), "KUBECACHEDIR="+filepath.Join(c.dir, "kubectl"))
	return cmd
}

// Logs is the end of the log of each server, for the report of a failure.
func (c *ControlPlane) Logs() string {
	var b strings.Builder
	for _, p := range c.processes {
		fmt.Fprintf(&b, "%s:\n%s\n", p.log, p.tail(logLines))
	}
	return b.String()
}

func (c *ControlPlane) logDir() string            { return filepath.Join(c.dir, "logs") }
func (c *ControlPlane) certDir() string           { return filepath.Join(c.dir, "certificates") }
func (c *ControlPlane) tokenFile() string         { return filepath.Join(c.dir, "tokens.csv") }
func (c *ControlPlane) serviceAccountKey() string { return filepath.Join(c.dir, "service-account.key") }
