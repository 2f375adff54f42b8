// Package bodylog keeps the bodies of requests and answers out of the logs of client-go.
package bodylog

import (
	"context"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// bodyLevel is the verbosity from which client-go logs the bodies of requests and
// answers.
const bodyLevel = 8

// Without returns a context with which client-go logs no bodies, whatever --v is.
// It is for requests whose bodies are Secrets.
func Without(ctx context.Context) context.Context {
	return klog.NewContext(ctx, logr.New(terse{klog.FromContext(ctx).GetSink()}))
}

// terse is a logr.LogSink that drops messages of bodyLevel or above.
type terse struct{ logr.LogSink }

// Init implements logr.LogSink. It does not initialize the wrapped sink. That sink is
// initialized already, and other goroutines use it at the same time.
func (terse) Init(logr.RuntimeInfo) {}

// Enabled implements logr.LogSink.
func (t terse) Enabled(level int) bool { return level < bodyLevel && t.LogSink.Enabled(level) }

// WithValues implements logr.LogSink.
func (t terse) WithValues(keysAndValues ...any) logr.LogSink {
	return terse{t.LogSink.WithValues(keysAndValues...)}
}

// WithName implements logr.LogSink.
func (t terse) WithName(name string) logr.LogSink { return terse{t.LogSink.WithName(name)} }
