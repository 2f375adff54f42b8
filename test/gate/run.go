package main

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// endGrace is the time that a program has to end after the program that started it.
	endGrace = 5 * time.Second
	// killBound bounds the time that the kernel needs to end a process that was killed.
	killBound = 30 * time.Second
)

// run is one run of some parts.
type run struct {
	times  times
	out    io.Writer
	strict bool
	budget float64
	tested string
	rest   string

	// temporary is the variable that gives the programs of this run their temporary folder. No other program has it.
	temporary   string
	tree        string
	interrupted atomic.Bool
}

// part is one part of a run. Its failure is empty if it passed.
type part struct {
	name    string
	wall    time.Duration
	cpu     time.Duration
	failure string
}

// all runs the parts, and returns the exit code.
func (r *run) all(names []string) (int, error) {
	if len(names) == 0 {
		return 2, errors.New("want the names of parts")
	}
	cleanUp, err := r.prepare()
	if err != nil {
		return 1, err
	}
	defer cleanUp()
	var parts []part
	for _, name := range names {
		p := r.part(name)
		parts = append(parts, p)
		if p.failure != "" {
			_, _ = fmt.Fprintf(r.out, "gate: %s: %s\n", p.name, p.failure)
		}
		if r.interrupted.Load() || p.failure != "" && name == "build" {
			break
		}
	}
	tests, err := r.times.read(names)
	err = errors.Join(err, write(r.times.table, parts, tests))
	over := overBudget(r.budget, tests)
	passed := summarize(r.out, parts, tests, over) && err == nil && (over == "" || !r.strict)
	if !passed {
		_, _ = fmt.Fprintf(r.out, "%s: not passed.\n", total(parts))
		return 1, err
	}
	if err := r.stamp(); err != nil {
		return 1, err
	}
	_, _ = fmt.Fprintln(r.out, strings.TrimSpace(fmt.Sprintf("%s: all passed. %s", total(parts), r.rest)))
	return 0, nil
}

// prepare removes what earlier runs left, also one that was killed, and gives all programs of this run temporary folders
// that the next run finds. It fails if another run uses the folder.
func (r *run) prepare() (func(), error) {
	if err := endWithParent(); err != nil {
		return nil, fmt.Errorf("ending with the parent: %w", err)
	}
	home, err := filepath.Abs(filepath.Dir(r.times.folder))
	if err != nil {
		return nil, err
	}
	// The kernel releases the lock when the process ends. Its children do not inherit the file.
	lock, err := os.OpenFile(filepath.Join(home, ".gate.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("another run uses %s: %w", home, err), lock.Close())
	}
	// The name is the same for each run in this folder. It is short, because it becomes a part of the names of sockets.
	hash := fnv.New64a()
	_, _ = io.WriteString(hash, home)
	temporary := filepath.Join(os.TempDir(), fmt.Sprintf("postern-gate-%d-%x", os.Getuid(), hash.Sum64()))
	r.temporary = "TMPDIR=" + temporary
	if _, err := kill(r.temporary, 0); err != nil {
		return nil, err
	}
	// The go command renames a binary that is on the same file system, so a killed one leaves no half of it.
	built := filepath.Join(home, ".tmp")
	if err := errors.Join(os.RemoveAll(temporary), os.RemoveAll(built), os.RemoveAll(r.times.folder), os.RemoveAll(r.times.table)); err != nil {
		return nil, err
	}
	if err := errors.Join(os.Mkdir(temporary, 0o700), os.Mkdir(built, 0o700)); err != nil {
		return nil, err
	}
	if r.tested != "" {
		if err := os.RemoveAll(r.tested); err != nil {
			return nil, err
		}
		r.tree = tree()
	}
	cleanUp := func() { _ = os.RemoveAll(temporary); _ = os.RemoveAll(built); _ = lock.Close() }
	return cleanUp, errors.Join(os.Setenv("TMPDIR", temporary), os.Setenv("GOTMPDIR", built))
}

// part runs one target of the Makefile.
func (r *run) part(name string) part {
	p, start := part{name: name}, time.Now()
	cmd := exec.Command("make", "--no-print-directory", name) //nolint:gosec,noctx // foreground passes the signals on
	cmd.Stdout, cmd.Stderr = r.out, os.Stderr
	code, err := foreground(cmd, syscall.SIGTERM, &r.interrupted)
	p.wall = time.Since(start)
	if cmd.ProcessState != nil {
		p.cpu = cpuOf(cmd.ProcessState)
	}
	var failures []string
	switch {
	case err != nil:
		failures = append(failures, err.Error())
	case r.interrupted.Load():
		failures = append(failures, "interrupted")
	case code != 0:
		failures = append(failures, fmt.Sprintf("make %s failed with exit code %d", name, code))
	}
	left, err := kill(r.temporary, endGrace)
	if len(left) > 0 {
		failures = append(failures, "it left programs running: "+strings.Join(left, ", "))
	}
	if err != nil {
		failures = append(failures, err.Error())
	}
	p.failure = strings.Join(failures, "; ")
	return p
}

// stamp writes the hash of the tree that was tested, unless the tree has changed meanwhile.
func (r *run) stamp() error {
	if r.tested == "" {
		return nil
	}
	if r.tree == "" || r.tree != tree() {
		_, _ = fmt.Fprintf(r.out, "%s is not written: there are uncommitted changes, or a commit since the start, or no git.\n", r.tested)
		return nil
	}
	return os.WriteFile(r.tested, []byte(r.tree), 0o600)
}

// tree returns the hash of the tree that is checked out, or nothing if there are uncommitted changes.
func tree() string {
	changes, err := exec.Command("git", "status", "--porcelain").Output() //nolint:noctx // it ends by itself
	if err != nil || len(changes) > 0 {
		return ""
	}
	hash, err := exec.Command("git", "rev-parse", "HEAD^{tree}").Output() //nolint:noctx // it ends by itself
	if err != nil {
		return ""
	}
	return string(hash)
}
