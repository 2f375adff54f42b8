// Package sparselog limits the rate of log lines that any client can cause.
package sparselog

import (
	"sync"
	"time"
)

// interval is the shortest time between two lines.
const interval = time.Second

// Limiter allows one line a second. The zero value is ready for use.
type Limiter struct {
	mu         sync.Mutex
	last       time.Time
	suppressed int
}

// Allow reports whether a line may be logged now, and the number of lines that were suppressed since the last
// line.
func (l *Limiter) Allow() (suppressed int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if !l.last.IsZero() && now.Sub(l.last) < interval {
		l.suppressed++
		return 0, false
	}
	suppressed, l.last, l.suppressed = l.suppressed, now, 0
	return suppressed, true
}
