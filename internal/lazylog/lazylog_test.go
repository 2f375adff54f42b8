package lazylog_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/postern-dev/postern/internal/lazylog"
)

type key struct{}

func TestWithValues(t *testing.T) {
	var out bytes.Buffer
	ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&out))))
	made := 0
	ctx = lazylog.WithValues(context.WithValue(ctx, key{}, "other"), func() []any {
		made++
		return []any{"uid", "u"}
	})
	ctx = lazylog.WithValues(ctx, func() []any { return []any{"plugin", "P"} })
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if got := ctx.Value(key{}); got != "other" || made != 0 {
		t.Errorf("Got %v for another key and values that were made %d times, want that of the parent and none", got, made)
	}
	klog.FromContext(ctx).Info("Denied", "reason", "r")
	if got, want := out.String(), `"Denied" uid="u" plugin="P" reason="r"`; !strings.Contains(got, want) {
		t.Errorf("Got %s, want it to contain %s", got, want)
	}
}

// TestWithoutLogger covers a context that has no logger to which the values could be added.
func TestWithoutLogger(t *testing.T) {
	ctx := lazylog.WithValues(t.Context(), func() []any { return []any{"uid", "u"} })
	if got, want := klog.FromContext(ctx), klog.Background(); got != want {
		t.Errorf("Got %v, want the global logger", got)
	}
}
