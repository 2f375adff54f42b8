package fleetquota

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/fleetquota/ledger"
)

// settleTimeout bounds a decision of a request that has no deadline.
const settleTimeout = 10 * time.Second

// turns lets one request at a time serve all that wait.
type turns struct {
	turn chan struct{}

	mu      sync.Mutex
	waiting []*ask
}

// ask is a demand that waits.
type ask struct {
	*ledger.Demand

	gone <-chan struct{}
	done chan struct{}
	left bool
	err  error
}

var errUndecided = errors.New("the fleet quota was not charged")

// do waits until the ask has been served, by this request or by another one.
func (t *turns) do(ctx context.Context, a *ask, serve func(context.Context, []*ask)) error {
	a.gone, a.done, a.err = ctx.Done(), make(chan struct{}), errUndecided
	t.mu.Lock()
	t.waiting = append(t.waiting, a)
	t.mu.Unlock()
	select {
	case <-a.done:
	case t.turn <- struct{}{}:
		t.serve(ctx, a, serve)
	case <-ctx.Done():
		return fmt.Errorf("waiting to charge a fleet quota: %w", ctx.Err())
	}
	return a.err
}

func (t *turns) serve(ctx context.Context, a *ask, serve func(context.Context, []*ask)) {
	defer func() { <-t.turn }()
	select {
	case <-a.done:
		return
	default:
	}
	t.mu.Lock()
	batch := t.waiting
	t.waiting = nil
	t.mu.Unlock()
	defer func() {
		for _, a := range batch {
			close(a.done)
		}
	}()
	var present []*ask
	for _, a := range batch {
		select {
		case <-a.gone:
		default:
			present = append(present, a)
		}
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(settleTimeout)
	}
	// A client that hangs up must not stop the decision for the others.
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	defer cancel()
	serve(ctx, present)
}

func demands(batch []*ask) []*ledger.Demand {
	out := make([]*ledger.Demand, 0, len(batch))
	for _, a := range batch {
		out = append(out, a.Demand)
	}
	return out
}

// finish records which demands are left, and why.
func finish(batch []*ask, rest []*ledger.Demand, err error) {
	left := make(map[*ledger.Demand]bool, len(rest))
	for _, d := range rest {
		left[d] = true
	}
	for _, a := range batch {
		if a.left, a.err = left[a.Demand], nil; a.left {
			a.err = err
		}
	}
}
