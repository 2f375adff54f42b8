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
	// stopBound is longer than a webhook's time-out, for which a Postern waits when it stops.
	stopBound = 40 * time.Second
)

// Options say how a Postern is started.
type Options struct {
	// Plugins are exactly those that run; there may be none.
	Plugins []string
	// Flags come after all others, so one that is given here counts.
	Flags []string
	// Service has the API server call through a Service, which is made, instead of a URL.
	Service bool
	// Front is the address that the API server calls, if it is not the Postern itself but a proxy in front of
	// it.
	Front string
	// Kubeconfig is that of Postern's own service account if not set.
	Kubeconfig string
}

// Postern is a running one. It is stopped when the test ends, at the latest.
type Postern struct {
	process  *process
	port     int
	health   string
	expected bool // its exit is
}

// StartPostern starts a Postern and waits until it is ready and has registered what it has to register. The
// API server hears of that a moment later.
func (c *Cluster) StartPostern(tb testing.TB, o Options) *Postern {
	tb.Helper()
	p := c.LaunchPostern(tb, o)
	p.AwaitReady(tb)
	if len(o.Plugins) > 0 {
		p.AwaitRegistered(tb)
	}
	return p
}

// LaunchPostern starts a Postern and does not wait for anything.
func (c *Cluster) LaunchPostern(tb testing.TB, o Options) *Postern {
	tb.Helper()
	p := &Postern{port: FreePort(tb), health: Loopback(FreePort(tb))}
	if o.Kubeconfig == "" {
		o.Kubeconfig = c.PosternKubeconfig(tb, c.URL())
	}
	args := []string{
		"--kubeconfig=" + o.Kubeconfig, "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", p.port),
		"--health-bind-address=" + p.health, "--admission-control=" + strings.Join(o.Plugins, ","),
		// Nobody is to be told that this replica goes, unless a test is about that.
		"--shutdown-delay-duration=0s", "--v=2",
	}
	front := cmp.Or(o.Front, p.Addr())
	if o.Service {
		args = append(args, "--webhook-service="+ServiceName+":"+c.service(tb, front))
	} else {
		args = append(args, "--webhook-url=https://"+front)
	}
	var err error
	log := filepath.Join(tb.TempDir(), "postern.log")
	if p.process, err = startProcess(log, c.paths.binary, append(args, o.Flags...)...); err != nil {
		tb.Fatalf("Starting postern: %v", err)
	}
	tb.Cleanup(func() { p.cleanUp(tb) })
	return p
}

// RunPostern runs one of Postern's commands to its end and returns its exit code and what it said.
func (c *Cluster) RunPostern(tb testing.TB, args ...string) (int, string) {
	tb.Helper()
	p, err := startProcess(filepath.Join(tb.TempDir(), "postern.log"), c.paths.binary, args...)
	if err != nil {
		tb.Fatalf("Starting postern: %v", err)
	}
	code, err := p.wait(startBound)
	if err != nil {
		p.signal(os.Kill)
		<-p.done
		tb.Fatalf("postern %q: %v; it said:\n%s", args, err, p.tail(tailLines))
	}
	return code, p.output()
}

func (p *Postern) cleanUp(tb testing.TB) {
	tb.Helper()
	select {
	case <-p.process.done:
		if !p.expected {
			tb.Errorf("Postern exited unexpectedly: %v", p.process.err)
		}
	default:
		if err := p.process.stop(stopBound); err != nil {
			tb.Errorf("Postern did not stop within %v of SIGTERM: %v", stopBound, err)
		}
	}
	for line := range strings.Lines(p.Log()) {
		if strings.Contains(line, "panic") {
			tb.Errorf("Postern panicked: %s", line)
		}
		// This is how the API server refuses an account that may not.
		if strings.Contains(line, `is forbidden: User "`) {
			tb.Errorf("Postern was refused something: %s", line)
		}
	}
	if tb.Failed() {
		tb.Logf("The end of the log of the Postern at port %d:\n%s", p.port, p.process.tail(tailLines))
	}
}

// URL is where it serves, https://127.0.0.1:<port>.
func (p *Postern) URL() string { return "https://" + p.Addr() }

// Addr is the address of the secure port.
func (p *Postern) Addr() string { return Loopback(p.port) }

// Log is all that it has written.
func (p *Postern) Log() string { return p.process.output() }

// Terminate sends SIGTERM.
func (p *Postern) Terminate() {
	p.expected = true
	p.process.signal(syscall.SIGTERM)
}

// Kill has it die on the spot.
func (p *Postern) Kill() {
	p.expected = true
	p.process.signal(os.Kill)
	<-p.process.done
}

// Wait returns the exit code once it has exited, for which it has that long.
func (p *Postern) Wait(tb testing.TB, bound time.Duration) int {
	tb.Helper()
	p.expected = true
	code, err := p.process.wait(bound)
	if err != nil {
		tb.Fatalf("Postern has not exited within %v: %v", bound, err)
	}
	return code
}

// Stop terminates it and waits until it is gone.
func (p *Postern) Stop(tb testing.TB) {
	tb.Helper()
	p.Terminate()
	if code := p.Wait(tb, stopBound); code != 0 {
		tb.Errorf("Stopped by SIGTERM, Postern exited with %d, want 0", code)
	}
}

// Ready is nil if /readyz says so.
func (p *Postern) Ready(ctx context.Context) error {
	_, err := p.get(ctx, "/readyz")
	return err
}

// AwaitReady waits until it is ready, or fails the test when it exits instead.
func (p *Postern) AwaitReady(tb testing.TB) {
	tb.Helper()
	p.await(tb, "Postern is ready", p.Ready)
}

// AwaitRegistered waits until it has registered all its configurations.
func (p *Postern) AwaitRegistered(tb testing.TB) {
	tb.Helper()
	p.await(tb, "Postern has registered", p.Registered)
}

func (p *Postern) await(tb testing.TB, what string, check func(context.Context) error) {
	tb.Helper()
	Eventually(tb, startBound, what, func(ctx context.Context) error {
		select {
		case <-p.process.done:
			tb.Fatalf("Postern exited, wanted: %s", what)
		default:
		}
		return check(ctx)
	})
}

var registered = regexp.MustCompile(`(?m)^postern_webhook_registered\{.*\} (\S+)$`)

// Registered is nil if its metrics say that every configuration is as it should be, and that there is one.
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

// get reads from the health port.
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
