package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/controlplane/postern"
)

// upstream is one run of the command.
type upstream struct {
	options
	progress io.Writer
	binaries string
	plugins  []string
}

// run builds the missing binaries, runs the tests once for each column, and writes the table to out.
func run(ctx context.Context, o options, out, progress io.Writer) (err error) {
	u := &upstream{options: o, progress: progress}
	if !o.print {
		if u.binaries, err = u.prepare(ctx); err != nil || o.build {
			return err
		}
	}
	t := table{columns: u.columns, kubernetes: o.version, date: time.Now()}
	if t.has(offPostern) {
		if t.postern, err = u.selectGroups(ctx); err != nil {
			return err
		}
	}
	t.groups, u.plugins = u.groups, pluginsOf(u.groups)
	release, err := u.openDir()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	results := u.column
	if u.print {
		results = func(_ context.Context, c column) ([]spec, error) { return u.readReport(filepath.Join(u.dir, c.name)) }
	}
	for _, c := range u.columns {
		specs, err := results(ctx, c)
		if err != nil {
			return fmt.Errorf("column %s: %w", c.name, err)
		}
		t.add(c, specs)
	}
	if err := t.write(out); err != nil {
		return err
	}
	return t.judge()
}

// prepare builds the binaries that are not in the cache yet, and returns their folder.
func (u *upstream) prepare(ctx context.Context) (string, error) {
	names := append(controlplane.AllBinaries(), controlplane.E2ETest, controlplane.Ginkgo)
	return controlplane.Build(ctx, u.version, u.progress, names...)
}

// selectGroups keeps only the groups whose plugins Postern has. It returns Postern's version.
func (u *upstream) selectGroups(ctx context.Context) (string, error) {
	plugins, err := postern.Plugins(ctx, u.postern)
	if err != nil {
		return "", err
	}
	var lacking []string
	if u.groups, lacking = existing(u.groups, plugins); len(lacking) > 0 {
		u.say("not run, because Postern lacks the plugins: %s", strings.Join(lacking, ", "))
	}
	if len(u.groups) == 0 {
		return "", errors.New("no group is left to run")
	}
	return postern.Version(ctx, u.postern)
}

// openDir creates the folder for logs and reports. The returned function removes a temporary folder.
func (u *upstream) openDir() (func() error, error) {
	if u.dir != "" {
		dir, err := filepath.Abs(u.dir)
		u.dir = dir
		return func() error { return nil }, err
	}
	dir, err := os.MkdirTemp("", "postern-upstream-")
	u.dir = dir
	return func() error { return os.RemoveAll(dir) }, err
}

// column runs the tests in a new control plane and returns the results of all tests of the groups.
func (u *upstream) column(ctx context.Context, c column) (specs []spec, err error) {
	dir := filepath.Join(u.dir, c.name)
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(filepath.Join(dir, "postern"), 0o700)); err != nil {
		return nil, err
	}
	control, err := u.controlPlane(ctx, c, dir)
	if err != nil {
		return nil, err
	}
	live, fail := context.WithCancelCause(ctx)
	defer func() {
		fail(nil)
		err = errors.Join(err, control.Stop())
	}()
	go watch(live, fail, control.Wait)
	if err := createNode(live, control); err != nil {
		return nil, err
	}
	if !c.postern {
		return u.ginkgo(live, control, dir)
	}
	p, err := u.startPostern(live, control, filepath.Join(dir, "postern"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	go watch(live, fail, p.Wait)
	return u.ginkgo(live, control, dir)
}

func (u *upstream) controlPlane(ctx context.Context, c column, dir string) (*controlplane.ControlPlane, error) {
	u.say("column %s: starting a control plane", c.name)
	s, err := newSigner(dir)
	if err != nil {
		return nil, err
	}
	// No kubelet reports the state of the node, so these controllers would taint the node.
	const controllers = "--controllers=*,-node-lifecycle-controller,-taint-eviction-controller"
	return controlplane.Start(ctx, controlplane.Options{
		Version: u.version, Dir: filepath.Join(dir, "cluster"), ControllerManager: true, Progress: u.progress,
		APIServerFlags:         append(c.apiServerFlags(u.plugins), s.apiServerFlags()...),
		ControllerManagerFlags: append(append(s.controllerManagerFlags(), controllers), c.controllerManagerFlags()...),
	})
}

// watch cancels the context when a server exits.
func watch(ctx context.Context, fail context.CancelCauseFunc, wait func(context.Context) error) {
	if err := wait(ctx); err != nil {
		fail(err)
	}
}

func (u *upstream) startPostern(ctx context.Context, c *controlplane.ControlPlane, dir string) (*postern.Postern, error) {
	o := postern.Options{
		Binary: u.postern, Dir: dir, Plugins: u.plugins,
		// kube-apiserver runs other plugins, but none of Postern's.
		Flags: []string{"--api-server-plugins=none"},
	}
	if text := configurationOf(u.groups); text != "" {
		path := filepath.Join(dir, "plugins.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return nil, err
		}
		o.Flags = append(o.Flags, "--admission-control-config-file="+path)
	}
	o.Flags = append(o.Flags, u.flags...)
	return postern.Start(ctx, c, o)
}

// say prints a progress message.
func (u *upstream) say(format string, args ...any) {
	fmt.Fprintf(u.progress, "upstream: "+format+"\n", args...)
}
