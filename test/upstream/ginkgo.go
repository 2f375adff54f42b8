package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/controlplane/process"
)

const (
	report    = "report.json"
	heartbeat = 30 * time.Second
	stopGrace = 30 * time.Second
	logLines  = 30
)

// ginkgo runs the tests of the groups against a control plane and returns their results. Failed tests are results,
// not errors.
func (u *upstream) ginkgo(ctx context.Context, c *controlplane.ControlPlane, dir string) ([]spec, error) {
	log := filepath.Join(dir, "ginkgo.log")
	began := time.Now()
	p, err := process.StartLogged(log, nil, filepath.Join(u.binaries, controlplane.Ginkgo), u.ginkgoArgs(ctx, c, dir)...)
	if err != nil {
		return nil, err
	}
	if err := u.awaitGinkgo(ctx, p, began); err != nil {
		return nil, err
	}
	specs, err := u.readReport(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("ginkgo wrote no report (%s); the end of its log:\n%s", p.Exit(), process.Tail(log, logLines))
	}
	u.say("ran the tests in %s", time.Since(began).Round(time.Second))
	return specs, err
}

// readReport returns the results in Ginkgo's report in the folder.
func (u *upstream) readReport(dir string) ([]spec, error) {
	text, err := os.ReadFile(filepath.Join(dir, report))
	if err != nil {
		return nil, err
	}
	return parseReport(text, u.groups)
}

// awaitGinkgo waits until the process exits, and prints a message at intervals. When the context is done, it stops the
// process and returns the cause.
func (u *upstream) awaitGinkgo(ctx context.Context, p *process.Process, began time.Time) error {
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	for {
		select {
		case <-p.Done():
			return nil
		case <-ticker.C:
			u.say("the tests run, %s", time.Since(began).Round(time.Second))
		case <-ctx.Done():
			_ = p.Stop(stopGrace)
			return context.Cause(ctx)
		}
	}
}

func (u *upstream) ginkgoArgs(ctx context.Context, c *controlplane.ControlPlane, dir string) []string {
	args := []string{
		fmt.Sprintf("--procs=%d", u.procs), fmt.Sprintf("--timeout=%s", u.timeout), "--no-color",
		"--output-dir=" + dir, "--json-report=" + report, "--focus=" + focusOf(u.groups),
	}
	if skip := skipOf(u.groups); skip != "" {
		args = append(args, "--skip="+skip)
	}
	return append(args, filepath.Join(u.binaries, controlplane.E2ETest), "--",
		"--kubeconfig="+c.Kubeconfig(controlplane.Admin), "--provider=skeleton",
		"--kubectl-path="+c.Kubectl(ctx, controlplane.Admin).Path, "--e2e-output-dir="+dir,
		// There is no kubelet, so nothing becomes ready during these waits.
		"--allowed-not-ready-nodes=-1", "--node-schedulable-timeout=1s", "--system-daemonsets-startup-timeout=1s",
	)
}

// focusOf returns a regular expression that matches the names of all tests of the groups.
func focusOf(groups []group) string {
	var parts []string
	for _, g := range groups {
		parts = append(parts, "("+g.focus.String()+")")
	}
	return strings.Join(parts, "|")
}

// skipOf returns a regular expression that matches the names of the excluded tests of the groups. It is empty if no
// test is excluded. If it also matches a test of another group, that test has no result, which is an error.
func skipOf(groups []group) string {
	var parts []string
	for _, g := range groups {
		for _, e := range g.excluded {
			parts = append(parts, regexp.QuoteMeta(e.text))
		}
	}
	return strings.Join(parts, "|")
}
