// Package writes bounds the changes of API servers that requests need. The API server calls webhooks for each change, and users
// choose how many requests there are, and often what the webhooks have to do. A request that cannot be decided after a write is
// denied, see reads.Queued.
package writes

import (
	"context"
	"errors"
	"net"

	"golang.org/x/sync/semaphore"

	"github.com/postern-dev/postern/internal/reads"
)

// maxWaiting is how many changes wait for others. A request that waits counts for --max-requests-inflight, so this is a small
// part of its default, and the 429 of a request beyond costs it less than the wait.
const maxWaiting = 100

// ErrBusy is returned for a change that was not made, because others are being made.
var ErrBusy = errors.New("too many changes of this kind are being made")

var (
	errSilent = errors.New("there is no answer of the API server")
	errNoTime = errors.New("the request has no time left for it")
)

// Limit bounds how many changes of one kind are made at a time.
type Limit struct{ first, second, room *semaphore.Weighted }

// NewLimit returns a limit of n changes at a time, and n second ones.
func NewLimit(n int64) *Limit {
	return &Limit{first: semaphore.NewWeighted(n), second: semaphore.NewWeighted(n), room: semaphore.NewWeighted(n + maxWaiting)}
}

// Do calls write, after others have ended. It returns ErrBusy without a call if ctx ends while it waits for them, and at once if
// 100 wait.
func (l *Limit) Do(ctx context.Context, write func() error) error {
	if !l.room.TryAcquire(1) {
		return ErrBusy
	}
	defer l.room.Release(1)
	return wait(ctx, l.first, write)
}

// Then is Do for a second write of a request, which waits for other second writes alone: the first one has had its effect. They
// need no bound, because hardly more of them begin than first writes end.
func (l *Limit) Then(ctx context.Context, write func() error) error {
	return wait(ctx, l.second, write)
}

func wait(ctx context.Context, places *semaphore.Weighted, write func() error) error {
	reads.Queued(ctx)
	if ctx.Err() != nil {
		return errNoTime
	}
	if places.Acquire(ctx, 1) != nil {
		return ErrBusy
	}
	defer places.Release(1)
	return write()
}

// Shown returns what users may see of the error of a write. The errors of the network have addresses of the control plane.
func Shown(err error) error {
	if _, ok := errors.AsType[net.Error](err); ok {
		return errSilent
	}
	return err
}
