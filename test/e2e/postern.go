package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	tailLines = 40
	// stopBound is longer than the timeout of a webhook. A stopping Postern waits for that timeout.
	stopBound = 40 * time.Second
)

// Options configure a Postern process.
type Options struct {
	// Plugins lists the enabled plugins. No other plugin runs. The list may be empty.
	Plugins []string
	// Flags are appended to the command line, so a flag in this list overrides the default of the test.
	Flags []string
	// Service makes the API server call Postern through a Service instead of a URL. StartPostern creates the
	// Service, and without a Front also the Service of the canaries.
	Service bool
	// Front is the address of a proxy in front of Postern. If Front is set, the API server calls this address
	// instead of Postern's own.
	Front string
	// Kubeconfig defaults to the kubeconfig of Postern's service account.
	Kubeconfig string
	// Env is appended to the environment of the process.
	Env []string
}

// Postern is a running Postern process. The process is stopped at the end of the test at the latest.
type Postern struct {
	process  *loggedProcess
	port     int
	health   string
	expected bool // the test has asked the process to exit
}

// StartPostern starts a Postern and waits until it is ready and has registered its webhook configurations. The API
// server observes the configurations a moment later.
func (c *Cluster) StartPostern(tb testing.TB, o Options) *Postern {
	tb.Helper()
	p := c.LaunchPostern(tb, o)
	p.AwaitReady(tb)
	if len(o.Plugins) > 0 {
		p.AwaitRegistered(tb)
	}
	return p
}

// LaunchPostern starts a Postern and does not wait until it is ready.
func (c *Cluster) LaunchPostern(tb testing.TB, o Options) *Postern {
	tb.Helper()
	p := &Postern{port: FreePort(tb), health: Loopback(FreePort(tb))}
	if o.Kubeconfig == "" {
		o.Kubeconfig = c.PosternKubeconfig(tb, c.URL())
	}
	args := []string{
		"--kubeconfig=" + o.Kubeconfig, "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", p.port),
		"--health-bind-address=" + p.health, "--admission-control=" + strings.Join(o.Plugins, ","),
		// Only the tests of the graceful shutdown need a delay for clients to notice it.
		"--shutdown-delay-duration=0s", "--shutdown-connections-duration=1s", "--v=2",
	}
	if len(o.Plugins) == 0 {
		args = append(args, "--allow-no-plugins")
	}
	front := cmp.Or(o.Front, p.Addr())
	if o.Service {
		args = append(args, "--webhook-service="+ServiceName+":"+c.services(tb, front, o.Front == ""))
	} else {
		args = append(args, "--webhook-url=https://"+front)
	}
	var err error
	log := filepath.Join(tb.TempDir(), "postern.log")
	command := slices.Concat(o.Env, []string{c.paths.binary}, args, o.Flags)
	if p.process, err = startProcess(log, "/usr/bin/env", command...); err != nil {
		tb.Fatalf("Starting postern: %v", err)
	}
	tb.Cleanup(func() { p.cleanUp(tb) })
	return p
}

// RunPostern runs a Postern command until it exits, and returns its exit code and its output.
func (c *Cluster) RunPostern(tb testing.TB, args ...string) (int, string) {
	tb.Helper()
	p, err := startProcess(filepath.Join(tb.TempDir(), "postern.log"), c.paths.binary, args...)
	if err != nil {
		tb.Fatalf("Starting postern: %v", err)
	}
	code, err := p.Wait(startBound)
	if err != nil {
		p.Signal(os.Kill)
		<-p.Done()
		tb.Fatalf("postern %q: %v; it said:\n%s", args, err, p.tail(tailLines))
	}
	return code, p.output()
}

func (p *Postern) cleanUp(tb testing.TB) {
	tb.Helper()
	select {
	case <-p.process.Done():
		if !p.expected {
			tb.Errorf("Postern exited unexpectedly: %v", p.process.Exit())
		}
	default:
		if err := p.process.Stop(stopBound); err != nil {
			tb.Errorf("Postern did not stop within %v of SIGTERM: %v", stopBound, err)
		}
	}
	for line := range strings.Lines(p.Log()) {
		if strings.Contains(line, "panic") {
			tb.Errorf("Postern panicked: %s", line)
		}
		// The API server's message for a request that the authorizer denies contains this text.
		if strings.Contains(line, `is forbidden: User "`) {
			tb.Errorf("Postern was refused something: %s", line)
		}
	}
	if tb.Failed() {
		tb.Logf("The end of the log of the Postern at port %d:\n%s", p.port, p.process.tail(tailLines))
	}
}

// URL returns the URL of the secure port, https://127.0.0.1:<port>.
func (p *Postern) URL() string { return "https://" + p.Addr() }

// Addr returns the address of the secure port.
func (p *Postern) Addr() string { return Loopback(p.port) }

// Log returns the output of the process.
func (p *Postern) Log() string { return p.process.output() }

// Terminate sends SIGTERM to the process.
func (p *Postern) Terminate() {
	p.expected = true
	p.process.Signal(syscall.SIGTERM)
}

// Kill sends SIGKILL to the process.
func (p *Postern) Kill() {
	p.expected = true
	p.process.Signal(os.Kill)
	<-p.process.Done()
}

// Wait waits until the process has exited, for the duration bound at most, and returns the exit code.
func (p *Postern) Wait(tb testing.TB, bound time.Duration) int {
	tb.Helper()
	p.expected = true
	code, err := p.process.Wait(bound)
	if err != nil {
		tb.Fatalf("Postern has not exited within %v: %v", bound, err)
	}
	return code
}

// Stop terminates the process and waits until it has exited.
func (p *Postern) Stop(tb testing.TB) {
	tb.Helper()
	p.Terminate()
	if code := p.Wait(tb, stopBound); code != 0 {
		tb.Errorf("Stopped by SIGTERM, Postern exited with %d, want 0", code)
	}
}

// Ready returns nil if /readyz reports that Postern is ready.
func (p *Postern) Ready(ctx context.Context) error {
	_, err := p.get(ctx, "/readyz")
	return err
}

// Readyz returns the verbose answer of /readyz, which is the text of the error if Postern is not ready.
func (p *Postern) Readyz(ctx context.Context) string {
	text, err := p.get(ctx, "/readyz?verbose")
	if err != nil {
		return err.Error()
	}
	return text
}

// AwaitReady waits until Postern is ready. AwaitReady fails the test if the process exits first.
func (p *Postern) AwaitReady(tb testing.TB) {
	tb.Helper()
	p.await(tb, "Postern is ready", p.Ready)
}

// AwaitRegistered waits until Postern has registered all its webhook configurations.
func (p *Postern) AwaitRegistered(tb testing.TB) {
	tb.Helper()
	p.await(tb, "Postern has registered", p.Registered)
}

func (p *Postern) await(tb testing.TB, what string, check func(context.Context) error) {
	tb.Helper()
	Eventually(tb, startBound, what, func(ctx context.Context) error {
		select {
		case <-p.process.Done():
			tb.Fatalf("Postern exited, wanted: %s", what)
		default:
		}
		return check(ctx)
	})
}

var registered = regexp.MustCompile(`(?m)^postern_webhook_registered\{.*\} (\S+)$`)

// Registered returns nil if Postern's metrics report at least one webhook configuration, and report every webhook
// configuration as up to date.
func (p *Postern) Registered(ctx context.Context) error {
	text, err := p.get(ctx, "/metrics")
	if err != nil {
		return err
	}
	series := registered.FindAllStringSubmatch(text, -1)
	if len(series) == 0 {
		return errors.New("there is nothing to register")
	}
	if i := slices.IndexFunc(series, func(s []string) bool { return s[1] != "1" }); i >= 0 {
		return errors.New(series[i][0])
	}
	return nil
}

// get sends a GET request to the health port.
func (p *Postern) get(ctx context.Context, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.health+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, resp.Status, body)
	}
	return string(body), err
}
