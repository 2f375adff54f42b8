// Package proportion compares the work for something large with the work for its parts. Tests use it where a user chooses
// the size: work that grows with the square uses up the time of a request.
package proportion

import (
	"runtime"
	"syscall"
	"testing"
	"time"
)

// tries is the number of comparisons before a test fails. Something else in the process may be at work in one.
const tries = 5

// Check fails the test if one call of whole takes more than limit times as long as the given number of calls of part. It
// counts the time of processors that the process uses, so that other processes do not matter.
func Check(tb testing.TB, what string, limit float64, whole func(), parts int, part func()) {
	tb.Helper()
	var times float64
	for range tries {
		if times = float64(timeOf(tb, 1, whole)) / float64(timeOf(tb, parts, part)); times <= limit {
			return
		}
		runtime.GC()
	}
	tb.Errorf("%s: the work is %.1f times that for %d parts, want at most %.0f", what, times, parts, limit)
}

func timeOf(tb testing.TB, n int, f func()) time.Duration {
	tb.Helper()
	before := used(tb)
	for range n {
		f()
	}
	return max(used(tb)-before, time.Microsecond)
}

// used returns the time of processors that the process has used.
func used(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
