package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// childAttributes make the kernel send a child the signal when the thread that started it ends.
func childAttributes(s syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: s}
}

// endWithParent makes the kernel send this process SIGTERM when its parent ends.
func endWithParent() error {
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_PDEATHSIG, uintptr(syscall.SIGTERM), 0); errno != 0 {
		return errno
	}
	return nil
}

// running returns the processes that have this variable in their environment, such as TMPDIR=/tmp/x, by their process ids.
func running(variable string) map[int]string {
	out := map[int]string{}
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		environment, _ := os.ReadFile(file) // The process may have ended, or be another user's.
		if !slices.ContainsFunc(bytes.Split(environment, []byte{0}), func(v []byte) bool { return string(v) == variable }) {
			continue
		}
		dir := filepath.Dir(file)
		pid, err := strconv.Atoi(filepath.Base(dir))
		name, _ := os.ReadFile(filepath.Join(dir, "comm"))
		if err == nil && pid != os.Getpid() {
			out[pid] = fmt.Sprintf("%s (%d)", bytes.TrimSpace(name), pid)
		}
	}
	return out
}

// kill kills the processes that have the variable in their environment and do not end within the grace, and returns their
// names and process ids.
func kill(variable string, grace time.Duration) ([]string, error) {
	var names []string
	for end := time.Now().Add(grace); ; time.Sleep(50 * time.Millisecond) {
		left := running(variable)
		now := time.Now()
		if len(left) == 0 {
			return names, nil
		}
		for pid, name := range left {
			if now.After(end) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
				if !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
		if now.After(end.Add(killBound)) {
			return names, fmt.Errorf("killed, and still there after %v: %v", killBound, left)
		}
	}
}
