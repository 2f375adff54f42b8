package admit

import (
	"context"
	"time"
)

// Early returns a context that ends before ctx: at four fifths of the time that is left, but at most a second early. A plugin
// that denies what it cannot find out in time waits with this context, so that its denial is in time, too.
func Early(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, deadline.Add(-min(time.Until(deadline)/5, time.Second)))
}
