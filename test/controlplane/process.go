package controlplane

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// process is a server that was started here.
type process struct {
	name string
	log  string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has exited; err is set by then
	err  error
}

// startProcess starts a server whose output goes to a log file of its name, and sends it to exited when
// it exits for whatever reason.
func startProcess(name, path string, args []string, logDir string, exited chan<- *process) (*process, error) {
	log, err := os.Create(filepath.Join(logDir, name+".log"))
	if err != nil {
		return nil, err
	}
	// The child has its own copy.
	defer func() { _ = log.Close() }()
	p := &process{name: name, log: log.Name(), cmd: exec.Command(path, args...), done: make(chan struct{})} //nolint:noctx // it outlives the context of its start
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = childAttributes()
	started := make(chan error)
	go func() {
		// The kernel sends a child its death signal when the thread that started it ends, not only
		// when the process does. So that thread is kept for as long as the child lives.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		p.err = p.cmd.Wait()
		close(p.done)
		exited <- p
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	return p, nil
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// stop asks the server to stop, and kills it if it has not within the time. It is an error if the server
// was not running any more.
func (p *process) stop(grace time.Duration) error {
	if !p.running() {
		return p.failure()
	}
	// A failure to signal means that it has just exited, which is what is waited for.
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
		return nil
	case <-time.After(grace):
	}
	_ = p.cmd.Process.Kill()
	<-p.done
	return nil
}

// failure describes the exit of a server that ought to be running.
func (p *process) failure() error {
	how := "exit status 0"
	if p.err != nil {
		how = p.err.Error()
	}
	return fmt.Errorf("%s exited unexpectedly (%s); the end of its log:\n%s", p.name, how, p.tail(logLines))
}

// tail returns the last lines of the log.
func (p *process) tail(lines int) string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	all := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}
