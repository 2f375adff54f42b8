package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime returns the user and system time that a process has used, to the
// nanosecond: /proc/<pid>/stat counts in hundredths of a second. All of its
// threads are in it, also those that have ended.
func cpuTime(pid int) (time.Duration, error) {
	// The clock of another process, as clock_getcpuclockid(3) makes it.
	const scheduled = 2
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &t); err != nil { //nolint:gosec // process ids are small
		return 0, fmt.Errorf("reading the CPU time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// memory returns how much memory of a process is resident now, and the most that
// was, in bytes.
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
