package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime returns the user and system time of a process in nanoseconds. It does not
// use /proc/<pid>/stat, which counts in hundredths of a second. The time includes all
// threads of the process, also ended threads.
func cpuTime(pid int) (time.Duration, error) {
	// This is the clock id of another process, as clock_getcpuclockid(3) computes it.
	const scheduled = 2
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &t); err != nil { //nolint:gosec // process ids are small
		return 0, fmt.Errorf("reading the CPU time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// memory returns the resident memory of a process.
func memory(pid int) (memRow, error) {
	var m memRow
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return m, fmt.Errorf("reading the memory of process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(data)) {
		name, text, _ := strings.Cut(line, ":")
		into, ok := map[string]*int64{"VmRSS": &m.RSS, "VmHWM": &m.Most, "RssAnon": &m.Private}[name]
		if !ok {
			continue
		}
		if _, err := fmt.Sscanf(text, "%d kB", into); err != nil {
			return m, fmt.Errorf("reading the memory of process %d: %q: %w", pid, line, err)
		}
		*into <<= 10
	}
	return m, nil
}
