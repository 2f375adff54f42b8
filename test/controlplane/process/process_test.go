package process_test

import (
	"errors"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/test/controlplane/process"
)

// patience bounds a test that would otherwise hang. The tests do not measure this time.
const patience = 30 * time.Second

func TestProcessStops(t *testing.T) {
	for name, tc := range map[string]struct {
		script string
		want   string
		killed bool
	}{
		"by itself":         {script: `echo started; exit 3`, want: "exit status 3"},
		"when it is asked":  {script: `echo started; exec sleep 600`, want: "signal: terminated"},
		"when it is killed": {script: `trap "" TERM; echo started; while :; do sleep 0.1; done`, want: "signal: killed", killed: true},
	} {
		t.Run(name, func(t *testing.T) {
			log, exited := filepath.Join(t.TempDir(), "log"), make(chan struct{})
			p, err := process.StartLogged(log, func() { close(exited) }, "/bin/sh", "-c", tc.script)
			if err != nil {
				t.Fatal(err)
			}
			for deadline := time.Now().Add(patience); process.Tail(log, 1) != "started" && time.Now().Before(deadline); {
				time.Sleep(10 * time.Millisecond)
			}
			if name == "by itself" {
				<-p.Done()
			}
			if err := p.Stop(100 * time.Millisecond); errors.Is(err, process.ErrRunning) != tc.killed {
				t.Errorf("Got %v, want an error: %t", err, tc.killed)
			}
			<-exited
			if p.Running() || p.Exit() != tc.want {
				t.Errorf("Got running %t and exit %q, want %q", p.Running(), p.Exit(), tc.want)
			}
			if got := process.Output(log); got != "started\n" {
				t.Errorf("Got the output %q, want that it started", got)
			}
		})
	}
}

func TestStopKillsWhatTheProgramStarted(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	p, err := process.StartLogged(log, nil, "/bin/sh", "-c", `sleep 600 & echo $!; wait`)
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); process.Tail(log, 1) == "" && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	child, err := strconv.Atoi(process.Tail(log, 1))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(patience); err != nil {
		t.Errorf("Got %v from Stop", err)
	}
	// A killed process exists until its parent, init by now, reaps it.
	for deadline := time.Now().Add(patience); syscall.Kill(child, 0) == nil && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	if err := syscall.Kill(child, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("The child still exists: %v", err)
	}
}

func TestStartOfAProgramThatDoesNotExist(t *testing.T) {
	if _, err := process.Start(nil, nil, filepath.Join(t.TempDir(), "absent")); err == nil {
		t.Error("Got no error for a program that does not exist")
	}
}
