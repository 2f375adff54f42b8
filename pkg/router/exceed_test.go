package router

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestExceed has a budget of 10 bytes, of which requests hold 8. Each of them needs 5 more before it ends.
func TestExceed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(10)
		var delayed atomic.Bool
		exceed := func(owner string, by any) bool { return b.exceed(t.Context(), &delayed, owner, 10, 5, by) }
		if !b.take(t.Context(), &delayed, "tenants", 10, 8) || !exceed("tenants", 1) || delayed.Load() {
			t.Fatal("The first request did not get its bytes at once")
		}
		if !exceed("tenants", 1) || delayed.Load() {
			t.Error("The first request did not get more bytes")
		}
		if exceed("tenants", 2) || !delayed.Load() {
			t.Error("A second request did not wait for the first one")
		}
		if b.take(t.Context(), &delayed, "tenants", 10, 1) {
			t.Error("A new request got bytes that there are not")
		}
		if !exceed("nodes", 3) {
			t.Error("A request of another owner did not get its bytes")
		}
		b.give("nodes", 5)
		got := make(chan bool, 1)
		go func() { got <- exceed("tenants", 2) }()
		time.AfterFunc(patience/2, func() { b.give("tenants", 12) })
		if !<-got {
			t.Error("The second request got no bytes when the first one had ended")
		}
		b.give("tenants", 11)
		if b.used != 0 || len(b.owned) > 0 || len(b.over) > 0 {
			t.Errorf("Got %d bytes used, %v, %v, want none", b.used, b.owned, b.over)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if !b.exceed(ctx, &delayed, "tenants", 10, 20, 1) || b.exceed(ctx, &delayed, "tenants", 10, 1, 2) {
			t.Error("A request that has ended waited")
		}
	})
}
