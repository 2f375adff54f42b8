package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	heartbeat  = 10 * time.Second
	lockPeriod = 200 * time.Millisecond
	errorLines = 20
)

// builder builds the binaries of one version into the cache folder of that version.
type builder struct {
	dir      string
	version  string
	progress io.Writer
}

// build builds the missing binaries. Only one builder runs at a time, because two builders would compete for
// the processors and build the same binaries.
func (b *builder) build(ctx context.Context, names []string) error {
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return err
	}
	unlock, err := b.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := b.removeRemains(); err != nil {
		return err
	}
	missing, err := missingFrom(b.dir, names)
	if err != nil {
		return err
	}
	for _, batch := range b.batches(missing) {
		if err := b.compile(ctx, batch); err != nil {
			return fmt.Errorf("building %s: %w", batch.title(), err)
		}
	}
	return nil
}

// temporaryPrefix is the prefix of the names of temporary folders, in the folder of the binaries.
const temporaryPrefix = ".build-"

// removeRemains removes the temporary folders of builders that were killed. Each may hold half a gigabyte. The caller
// holds the lock, so no builder uses them.
func (b *builder) removeRemains() error {
	remains, err := filepath.Glob(filepath.Join(b.dir, temporaryPrefix+"*"))
	for _, folder := range remains {
		err = errors.Join(err, os.RemoveAll(folder))
	}
	return err
}

// lock waits for other builders of this version. The kernel releases the lock when its holder exits.
func (b *builder) lock(ctx context.Context) (func(), error) {
	file, err := os.OpenFile(filepath.Join(b.dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	unlock := func() { _ = file.Close() }
	start := time.Now()
	var told time.Time
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return unlock, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			unlock()
			return nil, fmt.Errorf("locking %s: %w", file.Name(), err)
		}
		if time.Since(told) >= heartbeat {
			told = time.Now()
			b.say("another process builds %s, waiting (%s)", b.version, elapsed(start))
		}
		select {
		case <-ctx.Done():
			unlock()
			return nil, ctx.Err()
		case <-time.After(lockPeriod):
		}
	}
}

// compile builds the binaries of a batch in a temporary folder and then moves them, so that no reader sees an incomplete
// binary.
func (b *builder) compile(ctx context.Context, batch batch) error {
	b.say("building %s %s, once; %s on 2 processors", batch.title(), batch.version, batch.takes())
	start := time.Now()
	// If this process is killed, the go command may continue to write to this folder.
	temporary, err := os.MkdirTemp(b.dir, temporaryPrefix)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(temporary) }()
	done := make(chan error, 1)
	go func() { done <- b.goBuild(ctx, batch, temporary) }()
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			b.say("building %s, %s", batch.title(), elapsed(start))
		case err := <-done:
			if err != nil {
				return err
			}
			for _, name := range batch.names {
				if err := os.Rename(filepath.Join(temporary, name), filepath.Join(b.dir, name)); err != nil {
					return err
				}
			}
			b.say("built %s %s in %s", batch.title(), batch.version, elapsed(start))
			return nil
		}
	}
}

// goBuild runs one go command, which writes all binaries of the batch to the folder.
func (b *builder) goBuild(ctx context.Context, batch batch, folder string) error {
	dir, mod, err := b.module(ctx, batch.recipe)
	if err != nil {
		return err
	}
	args := []string{"build"}
	if batch.test {
		args = []string{"test", "-c"}
	}
	// The go command names the binaries after their packages, which a single binary need not have.
	output := folder + string(filepath.Separator)
	if len(batch.names) == 1 {
		output = filepath.Join(folder, batch.names[0])
	}
	// Without cgo the build is the same on every machine. -trimpath keeps local paths out of the binary.
	args = append(args, "-mod="+mod, "-trimpath", "-buildvcs=false", "-ldflags", batch.linkerFlags(), "-o", output)
	cmd := exec.CommandContext(ctx, "go", append(args, batch.packages...)...)
	cmd.Dir = dir
	// A compiler that collects its garbage rarely takes a fifth less CPU.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH,
		"GOGC=400", "GOMEMLIMIT=2GiB")
	// On an interrupt the go command removes its temporary files and stops its compilers.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = stopGrace
	text, err := cmd.CombinedOutput()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		return fmt.Errorf("%w:\n%s", err, strings.Join(lines[max(0, len(lines)-errorLines):], "\n"))
	}
	return nil
}

// say prints a progress message. A failed write must not fail the build, so say ignores the error.
func (b *builder) say(format string, args ...any) {
	_, _ = fmt.Fprintf(b.progress, "controlplane: "+format+"\n", args...)
}

func elapsed(start time.Time) time.Duration { return time.Since(start).Round(time.Second) }
