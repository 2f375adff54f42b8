// Package pause keeps writers in conflict apart. Those that wait for the same time meet again.
package pause

import (
	"context"
	"math/rand/v2"
	"time"
)

// Random waits for a random time below most, which is positive. It returns the error of the context if that ends earlier.
func Random(ctx context.Context, most time.Duration) error {
	timer := time.NewTimer(rand.N(most)) //nolint:gosec // nobody gains from a guess
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err() //nolint:wrapcheck // the caller knows what it waits for
	}
}
