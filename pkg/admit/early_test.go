package admit_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/pkg/admit"
)

func TestEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for timeout, want := range map[time.Duration]time.Duration{
			30 * time.Second: 29 * time.Second,
			5 * time.Second:  4 * time.Second,
			time.Second:      800 * time.Millisecond,
			-time.Second:     0,
		} {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			early, end := admit.Early(ctx)
			defer end()
			start := time.Now()
			<-early.Done()
			if got := time.Since(start); got != want {
				t.Errorf("Got %v of %v, want %v", got, timeout, want)
			}
		}
		early, end := admit.Early(t.Context())
		end()
		if early != t.Context() {
			t.Error("A context without a deadline ends early")
		}
	})
}
