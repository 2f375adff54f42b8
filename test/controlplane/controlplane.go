// Package controlplane builds and starts a real Kubernetes control plane on this machine: etcd,
// kube-apiserver and, on request, kube-controller-manager. It also builds kubectl. There are no nodes, so
// pods are admitted and stored but never run. See README.md.
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
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// portAttempts bounds the number of starts that may fail because another program took a port that was
	// free a moment earlier.
	portAttempts = 3
	// stopGrace is the time that a server has to exit after SIGTERM. kube-apiserver needs a second or
	// two while clients are connected.
	stopGrace = 10 * time.Second
	logLines  = 15

	// secondAPIServer is the name of the process of AddAPIServer. maxServers is the largest number of processes.
	secondAPIServer = "second-kube-apiserver"
	maxServers      = 4
)

// Options configure a control plane. The zero value means DefaultVersion in a temporary folder.
type Options struct {
	// Version is the version of Kubernetes, such as v1.36.3. If empty, it is DefaultVersion. Version has
	// no effect if KUBEBUILDER_ASSETS provides the binaries.
	Version string
	// Dir holds the state, the kubeconfigs and the logs. A control plane that starts in the folder of a
	// stopped control plane has the same objects. If Dir is empty, Start creates a temporary folder and
	// Stop removes it.
	Dir string
	// ControllerManager also starts kube-controller-manager. Without kube-controller-manager no namespace
	// gets a default service account. So the admission plugin ServiceAccount is then disabled, unless
	// APIServerFlags names it in --enable-admission-plugins.
	ControllerManager bool
	// APIServerFlags are further flags of kube-apiserver. A flag given here replaces the default flag of
	// the same name, but ServiceAccount stays disabled as described for ControllerManager.
	APIServerFlags []string
	// ControllerManagerFlags are further flags of kube-controller-manager. A flag given here replaces the
	// default flag of the same name.
	ControllerManagerFlags []string
	// Progress receives messages about the build. Nothing is written if every binary is already built.
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
	processes []*server
	exited    chan *server
	port      int // of the API server
	stopOnce  sync.Once
	stopErr   error
}

// Start builds the missing binaries, starts the servers and returns when they are ready. They are ready when
// the API server reports it and the namespace default exists (with its service account, if the controller
// manager runs). ctx bounds the start only.
func Start(ctx context.Context, o Options) (*ControlPlane, error) {
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	names := []string{Etcd, kubeAPIServer, kubectl}
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

// prepare creates the folder and the files that do not depend on the ports.
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
	// This folder holds tokens and keys.
	if err := os.MkdirAll(c.logDir(), 0o700); err != nil {
		return err
	}
	if err := writeServiceAccountKey(c.serviceAccountKey()); err != nil {
		return err
	}
	c.tokens = newTokens()
	return writeTokens(c.tokenFile(), c.tokens)
}

// boot starts the servers one after the other. Each server starts when the server it depends on is ready.
func (c *ControlPlane) boot(ctx context.Context) error {
	ports, err := freePorts(ctx, 2)
	if err != nil {
		return err
	}
	c.exited = make(chan *server, maxServers)
	c.client = nil
	c.etcdURL = fmt.Sprintf("http://127.0.0.1:%d", ports[0])
	c.serverURL, c.port = fmt.Sprintf("https://127.0.0.1:%d", ports[1]), ports[1]
	if err := c.run(Etcd, Etcd, c.etcdArgs()); err != nil {
		return err
	}
	if err := c.await(ctx, c.etcdReady); err != nil {
		return err
	}
	if err := c.startAPIServer(ctx); err != nil {
		return err
	}
	if !c.options.ControllerManager {
		return nil
	}
	if err := c.run(kubeControllerManager, kubeControllerManager, c.controllerManagerArgs()); err != nil {
		return err
	}
	return c.await(ctx, c.controllerManagerReady)
}

func (c *ControlPlane) startAPIServer(ctx context.Context) error {
	if err := c.run(kubeAPIServer, kubeAPIServer, c.apiServerArgs(c.etcdURL, c.port)); err != nil {
		return err
	}
	return c.await(ctx, c.apiServerReady)
}

// AddAPIServer starts a second API server with the same objects, flags, users and certificate, and returns its URL when it is ready.
// It reaches etcd by etcdURL, that of EtcdURL or of a proxy. There may be one at a time. The caller must stop it before a proxy.
func (c *ControlPlane) AddAPIServer(ctx context.Context, etcdURL string) (url string, stop func() error, err error) {
	if c.find(secondAPIServer) >= 0 {
		return "", nil, errors.New("a second API server runs already")
	}
	for attempt := 1; ; attempt++ {
		url, err = c.startSecond(ctx, etcdURL)
		if err == nil {
			return url, func() error { return c.stopServer(secondAPIServer) }, nil
		}
		lost := c.portTaken()
		if i := c.find(secondAPIServer); i >= 0 && c.processes[i].Running() {
			err = errors.Join(err, c.stopServer(secondAPIServer))
		} else if i >= 0 { // Its exit is the error.
			c.processes = slices.Delete(c.processes, i, i+1)
		}
		if !lost || attempt == portAttempts {
			return "", nil, err
		}
	}
}

func (c *ControlPlane) startSecond(ctx context.Context, etcdURL string) (url string, err error) {
	ports, err := freePorts(ctx, 1)
	if err != nil {
		return "", err
	}
	if err := c.run(secondAPIServer, kubeAPIServer, c.apiServerArgs(etcdURL, ports[0])); err != nil {
		return "", err
	}
	url = fmt.Sprintf("https://127.0.0.1:%d", ports[0])
	return url, c.await(ctx, func(ctx context.Context) error { return get(ctx, c.client, url+"/readyz", c.tokens[Admin]) })
}

// find returns the index of the process with a name, or -1.
func (c *ControlPlane) find(name string) int {
	return slices.IndexFunc(c.processes, func(s *server) bool { return s.name == name })
}

// StopAPIServer ends the process of the API server, and returns when it has exited. etcd and the other servers go on.
// StartAPIServer starts the API server again. Wait reports the exit as an error, so no caller may wait at that time.
func (c *ControlPlane) StopAPIServer() error { return c.stopServer(kubeAPIServer) }

func (c *ControlPlane) stopServer(name string) error {
	i := c.find(name)
	if i < 0 {
		return fmt.Errorf("no %s runs", name)
	}
	s := c.processes[i]
	if err := s.stop(stopGrace); err != nil {
		return err
	}
	c.processes = slices.Delete(c.processes, i, i+1)
	if other := <-c.exited; other != s {
		return other.failure()
	}
	return nil
}

// StartAPIServer starts an API server that StopAPIServer has stopped, with the same address and the same flags, and
// returns when it is ready. Its log begins anew.
func (c *ControlPlane) StartAPIServer(ctx context.Context) error { return c.startAPIServer(ctx) }

func (c *ControlPlane) run(name, program string, args []string) error {
	p, err := startServer(name, filepath.Join(c.binaries, program), args, c.logDir(), c.exited)
	if err != nil {
		return err
	}
	c.processes = append(c.processes, p)
	return nil
}

// portTaken reports whether a server exited because its port was no longer free.
func (c *ControlPlane) portTaken() bool {
	for _, p := range c.processes {
		if !p.Running() && strings.Contains(p.tail(logLines), "address already in use") {
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

// stopProcesses stops the servers in the reverse order of their start, so that no server loses a server that
// it depends on.
func (c *ControlPlane) stopProcesses() error {
	var errs []error
	for len(c.processes) > 0 {
		last := len(c.processes) - 1
		errs = append(errs, c.processes[last].stop(stopGrace))
		c.processes = c.processes[:last]
	}
	return errors.Join(errs...)
}

// EtcdURL returns the address of etcd, http://127.0.0.1:<port>.
func (c *ControlPlane) EtcdURL() string { return c.etcdURL }

// URL returns the address of the API server, https://127.0.0.1:<port>.
func (c *ControlPlane) URL() string { return c.serverURL }

// Client returns a client that trusts the API server's certificate. Requests must carry a token, see Token.
func (c *ControlPlane) Client() *http.Client { return c.client }

// Token returns the bearer token of a user.
func (c *ControlPlane) Token(u User) string { return c.tokens[u] }

// Kubeconfig returns the path of a kubeconfig file for a user. The file refers to no other file, so it may be
// copied.
func (c *ControlPlane) Kubeconfig(u User) string {
	return filepath.Join(c.dir, "kubeconfig-"+strings.ReplaceAll(string(u), ":", "-"))
}

// CAFile returns the path of the CA certificate that signed the API server's certificate.
func (c *ControlPlane) CAFile() string { return filepath.Join(c.dir, "ca.crt") }

// Kubectl returns a kubectl command that runs as the user. kubectl has the version of the control plane.
func (c *ControlPlane) Kubectl(ctx context.Context, u User, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(c.binaries, kubectl), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig(u), "KUBECACHEDIR="+filepath.Join(c.dir, "kubectl"))
	return cmd
}

// Logs returns the last lines of each server's log, for the report of a failure.
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
