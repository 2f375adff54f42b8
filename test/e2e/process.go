package e2e

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// process is a child process whose output goes to a file.
type process struct {
	log  string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has exited; err is set by then
	err  error
}

func startProcess(log, path string, args ...string) (*process, error) {
	file, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	// The child has its own copy.
	defer func() { _ = file.Close() }()
	p := &process{log: log, done: make(chan struct{})}
	p.cmd = exec.Command(path, args...) //nolint:gosec,noctx // it is our own program, and asked to stop before it is killed
	p.cmd.Stdout, p.cmd.Stderr = file, file
	p.cmd.SysProcAttr = childAttributes()
	started := make(chan error)
	go func() {
		// The kernel kills the child when the thread that started it ends, so the thread has to stay.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// signal does nothing to a process that has exited.
func (p *process) signal(s os.Signal) { _ = p.cmd.Process.Signal(s) }

// wait returns the exit code, or an error if the process still runs after the time. A process that was killed
// has the code -1.
func (p *process) wait(bound time.Duration) (int, error) {
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-time.After(bound):
		return 0, errors.New("it still runs")
	}
}

// stop asks the process to stop, and kills it if it does not. That is an error.
func (p *process) stop(bound time.Duration) error {
	p.signal(syscall.SIGTERM)
	_, err := p.wait(bound)
	if err != nil {
		p.signal(os.Kill)
		<-p.done
	}
	return err
}

func (p *process) output() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// tail is the end of the output.
func (p *process) tail(lines int) string {
	all := bytes.Split(bytes.TrimSpace([]byte(p.output())), []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}
