package router

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/postern-dev/postern/internal/reads"
)

// TestExceed has a budget of 10 bytes, of which requests hold 8. Each of them needs 5 more before it ends.
func TestExceed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(10)
		var delayed atomic.Bool
		exceed := func(ctx context.Context, by any) (ok, beside bool) {
			return b.exceed(ctx, &delayed, "tenants", 8, 5, by)
		}
		check := func(what string, ok, beside, wantOK, wantBeside bool) {
			t.Helper()
			if ok != wantOK || beside != wantBeside {
				t.Errorf("%s: got %t, beside the budget %t; want %t, %t", what, ok, beside, wantOK, wantBeside)
			}
		}
		if !b.take(t.Context(), &delayed, "tenants", 8, 8) {
			t.Fatal("The requests got no bytes")
		}
		ok, beside := exceed(t.Context(), 1)
		check("the first request", ok, beside, true, true)
		ok, beside = exceed(t.Context(), 1)
		check("the first request again", ok, beside, true, true)
		if delayed.Load() {
			t.Error("The first request waited")
		}
		if !b.take(t.Context(), &delayed, "nodes", 10, 2) {
			t.Error("What one request exceeds is missing for the reserve")
		}
		ok, beside = exceed(t.Context(), 2)
		check("another request", ok, beside, false, false)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		ok, beside = exceed(ended, 2)
		check("another request that has ended", ok, beside, false, false)
		if !delayed.Load() {
			t.Error("The other request did not wait")
		}
		time.AfterFunc(patience/2, func() { b.settle(1) })
		ok, beside = exceed(t.Context(), 2)
		check("another request, when the first one ends", ok, beside, true, true)
		b.settle(1) // It ended before.
		ok, beside = exceed(t.Context(), 3)
		check("a third request", ok, beside, false, false)
		time.AfterFunc(patience/2, func() { b.give("tenants", 8) })
		ok, beside = exceed(t.Context(), 3)
		check("a third request, when there are bytes", ok, beside, true, false)
		b.settle(2)
		b.give("tenants", 5)
		b.give("nodes", 2)
		if b.used != 0 || len(b.owned) > 0 || b.exceeding != nil {
			t.Errorf("Got %d bytes used, %v, %v, want none", b.used, b.owned, b.exceeding)
		}
	})
}

// TestWhatAnAccountHoldsBesideTheBudget has a budget of 12 bytes, of which ordinary requests may have 9, and have 7.
func TestWhatAnAccountHoldsBesideTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Router{memory: newBudget(12), metrics: NewMetrics(metrics.NewKubeRegistry())}
		r.memory.add(ordinaryClass, 7)
		check := func(what string, a *account, beside int64, by any) {
			t.Helper()
			if r.memory.used != 7 || a.exceeds != beside || a.claimed != beside || r.memory.exceeding != by {
				t.Errorf("%s: got %d bytes of the budget, %d beside it, %d claimed, %v", what, r.memory.used, a.exceeds, a.claimed, r.memory.exceeding)
			}
		}
		need := func(a reads.Account) {
			t.Helper()
			if err := a.Need(t.Context(), 6); err != nil {
				t.Error(err)
			}
		}
		a := r.newAccount(tenant{}, 2)
		part, end := a.Open()
		need(part)
		check("a part", a, 6, a.share)
		end()
		check("the end of the part", a, 0, nil)
		need(a)
		check("the request", a, 6, a.share)
		other := r.newAccount(tenant{}, 2)
		got := make(chan error, 1)
		go func() { got <- other.Need(t.Context(), 6) }()
		synctest.Wait()
		other.end()
		a.end()
		if err := <-got; err != nil {
			t.Error(err)
		}
		check("the end of the request", a, 0, nil)
		check("a request that ended while it waited", other, 0, nil)
		need(a)
		check("a request that has ended", a, 0, nil)
	})
}
