// Package writes bounds the changes of API servers that requests need. The API server calls webhooks for each change, and users
// choose how many requests there are, and often what the webhooks have to do.
package writes

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/semaphore"
)

// maxWaiting is how many changes wait for others. A request that waits counts for --max-requests-inflight, so this is a small
// part of its default, and the 429 of a request beyond costs it less than the wait.
const maxWaiting = 100

// ErrBusy is returned for a change that was not made, because others are being made.
var ErrBusy = errors.New("too many changes of this kind are being made")

// Limit bounds how many changes of one kind are made at a time.
type Limit struct{ places, room *semaphore.Weighted }

// NewLimit returns a limit of n changes at a time.
func NewLimit(n int64) *Limit {
	return &Limit{places: semaphore.NewWeighted(n), room: semaphore.NewWeighted(n + maxWaiting)}
}

// Do calls write, after others have ended. It returns ErrBusy without a call if ctx ends before, and at once if 100 wait.
func (l *Limit) Do(ctx context.Context, write func() error) error {
	if !l.room.TryAcquire(1) {
		return ErrBusy
	}
	defer l.room.Release(1)
	if err := l.places.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("%w: %w", ErrBusy, err)
	}
	defer l.places.Release(1)
	return write()
}
