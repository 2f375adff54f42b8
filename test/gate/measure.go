package main

import (
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// times are the files in which a run collects its times.
type times struct {
	// folder has the files PART-*.json of gotestsum with the events of tests, and cpu with the lines of measure.
	folder string
	// table is the result.
	table string
}

func timesIn(folder string) times {
	return times{folder: filepath.Join(folder, "times"), table: filepath.Join(folder, "times.tsv")}
}

func (t times) cpu() string { return filepath.Join(t.folder, "cpu") }

// measure runs a test binary, and returns its exit code. It records the CPU time of the binary and of all programs that
// the binary has waited for.
func measure(t times, args []string) (int, error) {
	// gotestsum runs no test at all in order to repeat the failure of a TestMain, and takes that for a test that passes.
	if slices.Contains(args, "-test.run=^$") {
		return 1, errors.New("a TestMain failed; that is not repeated")
	}
	cmd, code, err := start(args)
	if cmd.ProcessState == nil {
		return 1, err
	}
	if code > 1 {
		// gotestsum does not repeat the tests of a binary that panicked. It recognizes this line.
		fmt.Printf("panic: the test binary ended: %v\n", cmd.ProcessState)
	}
	name := args[0]
	if info, err := buildinfo.ReadFile(args[0]); err == nil {
		name = strings.TrimSuffix(info.Path, ".test")
	}
	return code, errors.Join(err, t.record(name, cpuOf(cmd.ProcessState)))
}

// start runs a program to its end. Like the go command, it waits while a process that was just forked has the new binary
// open for writing (golang/go#22315).
func start(args []string) (*exec.Cmd, int, error) {
	for try := 0; ; try++ {
		cmd := exec.Command(args[0], args[1:]...) //nolint:gosec,noctx // go test names its own binary, and bounds its time
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		code, err := foreground(cmd, syscall.SIGKILL, nil)
		if try < 5 && errors.Is(err, syscall.ETXTBSY) {
			time.Sleep(100 * time.Millisecond << try)
			continue
		}
		return cmd, code, err
	}
}

// record appends a line with one write, so that several test binaries may record at the same time.
func (t times) record(name string, cpu time.Duration) error {
	if err := os.MkdirAll(t.folder, 0o750); err != nil {
		return err
	}
	file, err := os.OpenFile(t.cpu(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(file, "%s\t%.1f\n", name, cpu.Seconds())
	return errors.Join(err, file.Close())
}

// foreground runs a command to its end, passes on the signals that end a program, and returns the exit code, which is 2 or
// more if a signal ended the command. If this process dies, the kernel sends the command the signal, on Linux. If
// interrupted is not nil, foreground sends SIGTERM instead of any signal, because make passes only that one on, and sets
// interrupted.
func foreground(cmd *exec.Cmd, orphaned syscall.Signal, interrupted *atomic.Bool) (int, error) {
	// The kernel sends the signal when the thread ends that started the command.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT)
	defer signal.Stop(signals)
	cmd.SysProcAttr = childAttributes(orphaned)
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	pass := func(s os.Signal) {
		if interrupted != nil {
			interrupted.Store(true)
			s = syscall.SIGTERM
		}
		_ = cmd.Process.Signal(s)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var err error
	for running := true; running; {
		select {
		case s := <-signals:
			pass(s)
		case err = <-ended:
			running = false
		}
	}
	// The command may have ended by the same signal, and the kernel may still have that of this process. After Stop, all signals that
	// came are in the channel.
	awaitSignals()
	signal.Stop(signals)
	for range len(signals) {
		pass(<-signals)
	}
	var failed *exec.ExitError
	if !errors.As(err, &failed) {
		return 0, err
	}
	if code := failed.ExitCode(); code > 0 {
		return code, nil
	}
	return 2, nil
}

// awaitSignals returns when the signals that the kernel has for this process have come. It sends the process another signal, which
// comes after them because it has a higher number.
func awaitSignals() {
	last := make(chan os.Signal, 1)
	signal.Notify(last, syscall.SIGWINCH)
	defer signal.Stop(last)
	if syscall.Kill(os.Getpid(), syscall.SIGWINCH) == nil {
		<-last
	}
}

func cpuOf(s *os.ProcessState) time.Duration { return s.UserTime() + s.SystemTime() }
