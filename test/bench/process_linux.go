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

// memory returns the current and the maximum resident memory of a process, in
// bytes.
func memory(pid int) (now, most int64, err error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0, 0, fmt.Errorf("reading the memory of process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(data)) {
		var kib int64
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kib); err == nil {
			now = kib << 10
		}
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kib); err == nil {
			most = kib << 10
		}
	}
	return now, most, nil
}
