// Package lazylog adds values to the logger of a context when the first message is logged. Most requests log nothing,
// and do not pay for a logger with their values.
package lazylog

import (
	"context"

	"k8s.io/klog/v2"
)

// WithValues returns a context whose logger has the keys and values that the func values returns, in addition to those
// of the logger of ctx.
func WithValues(ctx context.Context, values func() []any) context.Context {
	return &valued{Context: ctx, values: values}
}

// valued is a context with additional values for its logger.
type valued struct {
	context.Context //nolint:containedctx // The type is a context, as those of package context.

	values func() []any
}

// Value returns the logger with the additional values for the key of the logger, which is not exported. For any other
// key it returns the value of the parent.
func (v *valued) Value(key any) any {
	found := v.Context.Value(key)
	if log, ok := found.(klog.Logger); ok {
		return log.WithValues(v.values()...)
	}
	return found
}
