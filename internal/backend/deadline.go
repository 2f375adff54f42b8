package backend

import (
	"context"
	"errors"
	"time"
)

// HasTime reports whether a backend has the time d before the deadline of a request. A user chooses the time of a request
// (?timeout=1s), so a backend that does not answer in a shorter time has not failed.
func HasTime(ctx context.Context, d time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return !ok || time.Until(deadline) >= d
}

// TimedOut reports whether an error is due to a deadline. A connection may report the deadline of a context before the context
// does.
func TimedOut(err error) bool {
	timeout, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return ok && timeout.Timeout()
}
