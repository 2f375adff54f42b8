package secure

import (
	"context"
	"net/http"
	"sync"
	"time"
)

const (
	// turnsPerSource is how many callers of one source address have a turn or wait for one.
	turnsPerSource = 2
	// turnPatience is how long a caller waits for a turn.
	turnPatience = 5 * time.Second
)

// Turns bounds the number of callers at a time, in total and for each source address.
// Callers wait in the order in which they came, so that no source can keep others from
// their turn.
type Turns struct {
	free chan struct{}

	mu sync.Mutex
	by map[string]int
}

// NewTurns returns Turns for n callers at a time.
func NewTurns(n int) *Turns { return &Turns{free: make(chan struct{}, n), by: map[string]int{}} }

// Take waits for a turn. It returns false at once if other callers of the source have a
// turn or wait for one, and after a while if there is none.
func (t *Turns) Take(ctx context.Context, source string) bool {
	if !t.enter(source) {
		return false
	}
	timer := time.NewTimer(turnPatience)
	defer timer.Stop()
	select {
	case t.free <- struct{}{}:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	t.leave(source)
	return false
}

// Release ends a turn.
func (t *Turns) Release(source string) {
	<-t.free
	t.leave(source)
}

func (t *Turns) enter(source string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by[source] >= turnsPerSource {
		return false
	}
	t.by[source]++
	return true
}

func (t *Turns) leave(source string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by[source]--; t.by[source] == 0 {
		delete(t.by, source)
	}
}

// TooManyCallers answers a caller that gets no turn.
func TooManyCallers(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	http.Error(w, "too many callers at a time", http.StatusTooManyRequests)
}
