package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/controlplane/process"
	"github.com/postern-dev/postern/test/demo/example"
)

// stopGrace is the time that a program has to exit after SIGTERM.
const stopGrace = 10 * time.Second

type options struct {
	stay      bool
	dir       string
	postern   string
	examples  string
	installer string
	version   string
	plugins   []string // all plugins that the examples need, if empty
	config    string   // the examples' own configuration, if empty
	command   []string // builds Postern; empty if Postern is already built
}

// demo holds the running programs.
type demo struct {
	options
	out     io.Writer
	set     *example.Set
	folder  string
	roles   string // Postern's roles in YAML
	control *controlplane.ControlPlane
	images  *process.Process // the image policy backend, if a plugin needs it
	postern *postern
	hook    *hook
}

// run runs the whole demo. It always stops every program that it started before it returns.
func run(ctx context.Context, o options, out io.Writer) error {
	d := &demo{options: o, out: out}
	if err := d.load(); err != nil {
		return err
	}
	release, err := d.openFolder()
	if err != nil {
		return err
	}
	defer release()
	live, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	results, err := d.start(live, fail)
	if err == nil {
		err = d.report(results)
	}
	if err == nil && o.stay {
		d.play(live, results)
		<-live.Done()
	}
	switch {
	case err != nil && ctx.Err() != nil:
		err = errors.New("interrupted before it was up")
	case live.Err() != nil && ctx.Err() == nil:
		// If a server has exited, that is the cause of the other errors.
		err = context.Cause(live)
	}
	if stopErr := d.stop(); err == nil {
		err = stopErr
	}
	if err == nil {
		err = judge(results)
	}
	return err
}

// load reads the examples and chooses the plugins and the configuration. It also checks the version, before
// anything is built.
func (d *demo) load() error {
	set, err := example.Load(d.examples)
	if err != nil {
		return fmt.Errorf("reading the examples: %w", err)
	}
	d.set = set
	if d.plugins == nil {
		d.plugins = set.Plugins()
	}
	if d.config == "" {
		d.config = set.Config()
	}
	_, err = controlplane.BinaryDir(d.version)
	return err
}

// start starts all programs in the order of their dependencies, and applies the examples.
func (d *demo) start(ctx context.Context, fail context.CancelCauseFunc) ([]*result, error) {
	if err := d.build(ctx); err != nil {
		return nil, err
	}
	if err := d.printRoles(ctx); err != nil {
		return nil, err
	}
	if err := d.startControlPlane(ctx, fail); err != nil {
		return nil, err
	}
	results := d.newResults()
	if err := d.define(ctx); err != nil {
		return nil, err
	}
	if err := d.early(ctx, results); err != nil {
		return nil, err
	}
	if err := d.prepareConfig(ctx); err != nil {
		return nil, err
	}
	if err := d.startPostern(ctx, fail); err != nil {
		return nil, err
	}
	if err := d.startHook(ctx); err != nil {
		return nil, err
	}
	return results, d.apply(ctx, results)
}

// build builds what is missing: etcd beside Postern, because they share few packages and each is linked on one processor,
// then the programs of Kubernetes, which share the packages of both.
func (d *demo) build(ctx context.Context) error {
	etcd := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, err := controlplane.Build(ctx, d.version, d.out, controlplane.Etcd)
		etcd <- err
	}()
	err := d.buildPostern(ctx)
	if err != nil {
		cancel()
	}
	if etcdErr := <-etcd; err == nil && etcdErr != nil {
		err = fmt.Errorf("building the control plane: %w", etcdErr)
	}
	if err != nil {
		return err
	}
	if _, err := controlplane.Build(ctx, d.version, d.out, controlplane.AllBinaries()...); err != nil {
		return fmt.Errorf("building the control plane: %w", err)
	}
	return nil
}

// buildPostern runs the command that builds Postern, if one is given.
func (d *demo) buildPostern(ctx context.Context) error {
	if len(d.command) == 0 {
		return nil
	}
	began := time.Now()
	cmd := exec.CommandContext(ctx, d.command[0], d.command[1:]...) //nolint:gosec // It is our caller's command.
	cmd.Stdout, cmd.Stderr = d.out, d.out
	// On an interrupt the go command removes its temporary files and stops its compilers.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = stopGrace
	if err := d.during("building postern", cmd.Run); err != nil {
		return fmt.Errorf("building postern: %w", err)
	}
	d.say("built %s in %s", d.options.postern, since(began))
	return nil
}

func (d *demo) startControlPlane(ctx context.Context, fail context.CancelCauseFunc) error {
	d.say("starting etcd, kube-apiserver and kube-controller-manager %s", d.version)
	began := time.Now()
	err := d.during("waiting for the control plane", func() (err error) {
		d.control, err = controlplane.Start(ctx, controlplane.Options{
			Version: d.version, Dir: filepath.Join(d.folder, "cluster"), ControllerManager: true, Progress: d.out,
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("starting the control plane: %w", err)
	}
	go func() {
		if err := d.control.Wait(ctx); err != nil {
			fail(err)
		}
	}()
	d.say("the control plane is ready after %s", since(began))
	return nil
}

// play prints how to try more requests by hand, and then follows Postern's log.
func (d *demo) play(ctx context.Context, results []*result) {
	fmt.Fprint(d.out, "The cluster runs until you press ctrl-C. To play on in another terminal:\n\n")
	export := "export KUBECONFIG=" + d.control.Kubeconfig(controlplane.Admin)
	if _, err := exec.LookPath("kubectl"); err != nil {
		kubectl := d.control.Kubectl(ctx, controlplane.Admin).Path
		export += ` PATH="` + filepath.Dir(kubectl) + `:$PATH"`
	}
	fmt.Fprintln(d.out, export)
	for _, r := range results {
		if r.shown() && r.Request.Namespace() == "" {
			fmt.Fprintf(d.out, "kubectl get %s %s -o jsonpath='{%s}{\"\\n\"}'\n",
				strings.ToLower(r.Request.Kind()), r.Request.Name(), r.Fields[0].Path)
			break
		}
	}
	if d.images != nil {
		fmt.Fprintf(d.out, "\nIn the namespace image-policy, only images of %s with a digest are admitted. The first pod is admitted, the second one is denied:\n\n", allowedImages)
		const run = "kubectl run try --namespace=image-policy --dry-run=server --image=" + allowedImages + "/web"
		fmt.Fprintln(d.out, run+"@sha256:"+strings.Repeat("0123456789abcdef", 4))
		fmt.Fprintln(d.out, run+":v1")
	}
	fmt.Fprintf(d.out, "\nPostern's log, which is also in %s:\n\n", d.postern.log.path)
	d.postern.log.follow(d.out)
}

// stop stops the running programs in the reverse order of their start.
func (d *demo) stop() error {
	if d.control == nil {
		return nil
	}
	began := time.Now()
	var err error
	if d.postern != nil {
		_ = d.postern.process.Stop(stopGrace)
		err = d.postern.log.close()
	}
	if d.hook != nil {
		d.hook.close()
	}
	if d.images != nil {
		_ = d.images.Stop(stopGrace)
	}
	err = errors.Join(err, d.control.Stop())
	d.say("everything is stopped, in %s", since(began))
	return err
}
