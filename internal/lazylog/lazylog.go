// Package lazylog adds values to the logger of a context at the time of the first message. Most requests log nothing,
// so that a logger with the values of each request would be made in vain.
package lazylog

import (
	"context"

	"k8s.io/klog/v2"
)

// WithValues returns a context whose logger has the pairs of keys and values that values returns, besides those of the
// logger of ctx.
func WithValues(ctx context.Context, values func() []any) context.Context {
	return &valued{Context: ctx, values: values}
}

// valued is a context with additional values for its logger.
type valued struct {
	context.Context //nolint:containedctx // The type is a context, as those of package context.

	values func() []any
}

// Value returns the logger with its values for the key of the logger, which is not exported, and the value of the
// parent for any other key.
func (v *valued) Value(key any) any {
	found := v.Context.Value(key)
	if log, ok := found.(klog.Logger); ok {
		return log.WithValues(v.values()...)
	}
	return found
}
