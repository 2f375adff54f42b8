// Package sparselog limits the rate of log lines that any client can cause.
package sparselog

import (
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// interval is the time in which one more line is allowed.
const interval = time.Second

// Limiter allows one line a second, and after a pause as many at once as New says.
type Limiter struct {
	lines      *rate.Limiter
	suppressed atomic.Int64
}

// New returns a Limiter that allows at most the given number of lines at once.
func New(most int) *Limiter {
	return &Limiter{lines: rate.NewLimiter(rate.Every(interval), most)}
}

// Allow reports whether a line may be logged now, and the number of lines that were suppressed since the last
// line.
func (l *Limiter) Allow() (suppressed int64, ok bool) {
	if l.lines.Allow() {
		return l.suppressed.Swap(0), true
	}
	l.suppressed.Add(1)
	return 0, false
}
