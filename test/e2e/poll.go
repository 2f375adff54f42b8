package e2e

import (
	"context"
	"testing"
	"time"
)

const (
	pollPeriod = 50 * time.Millisecond
	// startBound is the maximum time for a process to start. It ends a test that would never end. It does not
	// measure anything.
	startBound = 60 * time.Second
)

// Eventually repeats the check until the check returns nil. The test fails and ends if the check does not return nil
// within the bound.
func Eventually(tb testing.TB, bound time.Duration, what string, check func(context.Context) error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), bound)
	defer cancel()
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			tb.Fatalf("Not within %v: %s: %v", bound, what, err)
		case <-time.After(pollPeriod):
		}
	}
}

// Throughout repeats the check for the whole span. The test fails and ends at the first error.
func Throughout(tb testing.TB, span time.Duration, what string, check func(context.Context) error) {
	tb.Helper()
	for end := time.Now().Add(span); time.Now().Before(end); time.Sleep(pollPeriod) {
		if err := check(tb.Context()); err != nil {
			tb.Fatalf("Not for all of %v: %s: %v", span, what, err)
		}
	}
}
