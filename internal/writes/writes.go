// Package writes bounds the changes of API servers that requests need. The API server calls webhooks for each change, and users
// choose how many requests there are, and often what the webhooks have to do. A request that cannot be decided after a write is
// denied, see reads.Queued.
package writes

import (
	"context"
	"errors"

	"golang.org/x/sync/semaphore"

	"github.com/postern-dev/postern/internal/backend"
	"github.com/postern-dev/postern/internal/reads"
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

// Do calls write, after others have ended. It returns ErrBusy without a call if ctx ends before, and at once if 100 wait. The
// error of a write is without the URL of the API server, because users read it.
func (l *Limit) Do(ctx context.Context, write func() error) error {
	if !l.room.TryAcquire(1) {
		return ErrBusy
	}
	defer l.room.Release(1)
	return l.Wait(ctx, write)
}

// Wait is Do for the second write of a request. It waits behind all others, however many they are, because the first write has
// had its effect.
func (l *Limit) Wait(ctx context.Context, write func() error) error {
	reads.Queued(ctx)
	if l.places.Acquire(ctx, 1) != nil {
		return ErrBusy
	}
	defer l.places.Release(1)
	return backend.WithoutURL(write())
}
