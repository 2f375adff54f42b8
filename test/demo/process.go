package main

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// process is a program that runs beside this one until it is stopped.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has exited and all of its output is written; err is set by then
	err  error
}

// startProcess starts a program that outlives ctx: what depends on it has to be stopped first.
func startProcess(ctx context.Context, output io.Writer, path string, args ...string) (*process, error) {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), path, args...) //nolint:gosec // It is the caller's program.
	p := &process{cmd: cmd, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = output, output
	p.cmd.SysProcAttr = childAttributes()
	started := make(chan error)
	go func() {
		// The kernel sends a child its death signal when the thread that started it ends, so that
		// thread is kept for as long as the child lives.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", path, err)
	}
	return p, nil
}

// stop asks the program to stop, kills it if it has not within the time, and returns when it is gone.
func (p *process) stop(grace time.Duration) {
	// An error of either signal means that it has exited, which is what is waited for.
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
		return
	case <-time.After(grace):
	}
	_ = p.cmd.Process.Kill()
	<-p.done
}

// how describes the exit of a program that has exited.
func (p *process) how() string {
	if p.err != nil {
		return p.err.Error()
	}
	return "exit status 0"
}
