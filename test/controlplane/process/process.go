// Package process starts and stops child programs of tests and tools. On Linux the kernel kills such a program
// when its parent dies.
package process

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// ErrRunning means that a program is still running.
var ErrRunning = errors.New("it still runs")

// Process is a started program.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the program has exited; err is set by then
	err  error
}

// Start starts a program and sends the program's output to output. If exited is not nil, Start calls it when the
// program has exited for any reason.
func Start(output io.Writer, exited func(), path string, args ...string) (*Process, error) {
	p := &Process{cmd: exec.Command(path, args...), done: make(chan struct{})} //nolint:noctx // it is the caller's program, and ends by Stop
	p.cmd.Stdout, p.cmd.Stderr = output, output
	p.cmd.SysProcAttr = childAttributes()
	started := make(chan error)
	go func() {
		// The kernel sends the death signal when the thread that started the child ends, not only when the
		// process ends. So this thread must live as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		p.err = p.cmd.Wait()
		close(p.done)
		if exited != nil {
			exited()
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", path, err)
	}
	return p, nil
}

// StartLogged calls Start with a new file for the output.
func StartLogged(log string, exited func(), path string, args ...string) (*Process, error) {
	file, err := os.Create(log)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", path, err)
	}
	// The child has its own copy of the file descriptor.
	defer func() { _ = file.Close() }()
	return Start(file, exited, path, args...)
}

// Done is closed when the program has exited.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running reports whether the program has not exited yet.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Signal sends a signal to the program. It does nothing if the program has exited.
func (p *Process) Signal(s os.Signal) { _ = p.cmd.Process.Signal(s) }

// Wait waits until the program exits and returns the exit code, or -1 if a signal killed the program. It returns
// ErrRunning when the time is up.
func (p *Process) Wait(bound time.Duration) (int, error) {
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-time.After(bound):
		return 0, ErrRunning
	}
}

// Stop sends SIGTERM to the program and returns when the program has exited. If the program still runs when the
// time is up, Stop kills it and returns ErrRunning. Stop kills the programs that the program started, if they still run
// and have not left its process group.
func (p *Process) Stop(grace time.Duration) error {
	if p.Running() {
		// The number of the group is free again if the program exited earlier, so another group may have it.
		defer func() { _ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) }()
	}
	p.Signal(syscall.SIGTERM)
	_, err := p.Wait(grace)
	if err != nil {
		p.Signal(os.Kill)
		<-p.done
	}
	return err
}

// Exit describes how the program exited. Call it only after Done is closed.
func (p *Process) Exit() string {
	if p.err != nil {
		return p.err.Error()
	}
	return "exit status 0"
}

// Output returns the content of a log file, or the error of reading the file.
func Output(log string) string {
	text, err := os.ReadFile(log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Tail returns the last lines of a log file.
func Tail(log string, lines int) string {
	all := bytes.Split(bytes.TrimSpace([]byte(Output(log))), []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}
