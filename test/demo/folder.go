package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// openFolder creates the state folder, locks it, and removes the state of the last run. The returned
// function unlocks the folder.
func (d *demo) openFolder() (func(), error) {
	if d.dir == "" {
		dir, err := os.MkdirTemp("", "postern-demo-")
		if err != nil {
			return nil, err
		}
		d.folder = dir
		release := func() { _ = os.RemoveAll(dir) }
		if err := os.Mkdir(filepath.Join(dir, "postern"), 0o700); err != nil {
			release()
			return nil, err
		}
		return release, nil
	}
	dir, err := filepath.Abs(d.dir)
	if err != nil {
		return nil, err
	}
	d.folder = dir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	release := func() { _ = lock.Close() }
	// The kernel releases the lock when its holder exits.
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		release()
		return nil, fmt.Errorf("locking %s, so another demo runs there, stop that first: %w", dir, err)
	}
	err = errors.Join(os.RemoveAll(filepath.Join(dir, "cluster")), os.RemoveAll(filepath.Join(dir, "postern")),
		os.Mkdir(filepath.Join(dir, "postern"), 0o700))
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}
