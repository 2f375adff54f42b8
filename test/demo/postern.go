package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/postern-dev/postern/test/controlplane/process"
)

const (
	// portAttempts bounds the number of starts that may fail because another program took a port that was
	// free a moment earlier.
	portAttempts = 3
	// probeTimeout bounds one attempt of a probe.
	probeTimeout = 5 * time.Second
	logLines     = 30
)

// postern is a running Postern.
type postern struct {
	process *process.Process
	log     *logFile
	health  string
}

// startPostern starts Postern with the account that the installer would give it, and waits until it is
// ready and registered.
func (d *demo) startPostern(ctx context.Context, fail context.CancelCauseFunc) error {
	kubeconfig, err := d.identify(ctx)
	if err != nil {
		return fmt.Errorf("making an account for postern: %w", err)
	}
	d.say("starting postern with %s", strings.Join(d.plugins, ", "))
	began := time.Now()
	for attempt := 1; ; attempt++ {
		lost, err := d.tryPostern(ctx, kubeconfig)
		if err == nil {
			break
		}
		if !lost || attempt == portAttempts {
			return err
		}
	}
	running, _ := d.postern.whileRunning(ctx)
	context.AfterFunc(running, func() { fail(context.Cause(running)) })
	d.say("postern is ready and registered after %s", since(began))
	return nil
}

// tryPostern starts Postern once. It returns lost if Postern exited because a port was no longer free.
func (d *demo) tryPostern(ctx context.Context, kubeconfig string) (lost bool, err error) {
	p := &postern{}
	secure, health, err := freePorts(ctx)
	if err != nil {
		return false, err
	}
	p.health = "http://" + health
	if p.log, err = newLogFile(filepath.Join(d.folder, "postern", "postern.log")); err != nil {
		return false, err
	}
	if p.process, err = process.Start(p.log, nil, d.options.postern, d.posternArgs(secure, health, kubeconfig)...); err != nil {
		return false, errors.Join(err, p.log.close())
	}
	d.postern = p
	ctx, cancel := p.whileRunning(ctx)
	defer cancel()
	if err = d.await(ctx, "postern to be ready", p.ready); err == nil {
		err = d.await(ctx, "postern to register its webhooks", p.registered)
	}
	if err == nil {
		return false, nil
	}
	tail := p.log.tail(logLines)
	_ = p.process.Stop(stopGrace)
	return strings.Contains(tail, "address already in use"), fmt.Errorf("%w; the end of its log:\n%s", err, tail)
}

// whileRunning returns a context that is cancelled when Postern exits.
func (p *postern) whileRunning(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-p.process.Done():
			cancel(fmt.Errorf("postern has exited (%s)", p.process.Exit()))
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

func (d *demo) posternArgs(secure, health, kubeconfig string) []string {
	host, port, _ := strings.Cut(secure, ":")
	args := []string{
		"--kubeconfig=" + kubeconfig,
		"--cert-dir=" + filepath.Join(d.folder, "postern", "certificates"),
		"--bind-address=" + host,
		"--secure-port=" + port,
		"--health-bind-address=" + health,
		"--webhook-url=https://" + secure,
		"--enable-admission-plugins=" + strings.Join(d.plugins, ","),
		// The only replica needs no delay before it shuts down.
		"--shutdown-delay-duration=0s", "--shutdown-connections-duration=1s",
		// This logs each denial. --v=2 would log much more.
		"--vmodule=chain=2",
	}
	if d.config != "" {
		args = append(args, "--admission-control-config-file="+d.config)
	}
	return args
}

// freePorts returns two loopback addresses whose ports are free at the time of the call.
func freePorts(ctx context.Context) (secure, health string, err error) {
	var addresses []string
	for range 2 {
		// Both listeners stay open until the second port is found, so that the two ports differ.
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return "", "", fmt.Errorf("looking for a free port: %w", err)
		}
		defer listener.Close()
		addresses = append(addresses, listener.Addr().String())
	}
	return addresses[0], addresses[1], nil
}

// ready succeeds when Postern reports that it is ready.
func (p *postern) ready(ctx context.Context) error {
	_, err := p.get(ctx, "/readyz")
	return err
}

// registered succeeds when Postern reports that it has applied all of its webhook configurations.
func (p *postern) registered(ctx context.Context) error {
	metrics, err := p.get(ctx, "/metrics")
	if err != nil {
		return err
	}
	found := false
	for line := range strings.Lines(metrics) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !strings.HasPrefix(series, "postern_webhook_registered{") {
			continue
		}
		if found = true; value != "1" {
			return fmt.Errorf("%s is %s", series, value)
		}
	}
	if !found {
		return errors.New("postern speaks of no webhook configuration yet")
	}
	return nil
}

// get sends a request to Postern's health port. It returns an error if Postern has exited.
func (p *postern) get(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.health+path, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", response.Status, strings.Join(strings.Fields(string(body)), " "))
	}
	return string(body), nil
}
