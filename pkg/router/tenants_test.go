package router

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/internal/reads"
	"github.com/postern-dev/postern/internal/sparselog"
)

// TestTenantsAreForgotten has requests with calls that take a while, wait, are refused, end while they wait, or outlive their
// request. Users choose the names of tenants, so nothing may remain of them.
func TestTenantsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &calls{maxWaiting: 10, tenants: map[tenant]*queue{}}
		var all sync.WaitGroup
		for i := range 300 {
			all.Go(func() {
				s := &share{tenant: tenant{namespaceTenant, fmt.Sprint("shop-", i%3), false}}
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%7+1)*10*time.Millisecond)
				defer cancel()
				const calls = 4
				over := i % 9
				for j := range calls {
					if j == over {
						c.end(s)
					}
					if err := c.take(ctx, s); err == nil {
						time.Sleep(time.Duration(i%11) * time.Millisecond)
						c.give(s.tenant)
					}
				}
				if over >= calls {
					c.end(s)
				}
			})
		}
		all.Wait()
		if len(c.tenants) != 0 || c.waiting != 0 || c.waitingTenants != 0 {
			t.Errorf("There are %d tenants left, and %d requests of %d tenants wait", len(c.tenants), c.waiting, c.waitingTenants)
		}
	})
}

// TestExplain covers requests that could not be decided, after others were in the way or not.
func TestExplain(t *testing.T) {
	failed := &Failure{http.StatusInternalServerError, "the API server is away"}
	panicked := &rejection{code: http.StatusInternalServerError, sentence: "panic", isChosen: true}
	const calls = `too many requests of namespace "shop" need the API server, repeat it later`
	const queued = "the request had to wait and could not be decided, repeat it later"
	const held = "too many bytes of requests are held"
	for name, tc := range map[string]struct {
		waited, refused, delayed, delayedBody, queued, isOver bool

		isChosen bool
		err      error
		// user and component are what the requests of a user and of a component get.
		user, component string
	}{
		"nothing in the way":           {err: failed, user: failed.Cause, component: failed.Cause},
		"calls":                        {waited: true, err: failed, user: calls, component: failed.Cause},
		"calls, then no memory":        {waited: true, refused: true, delayed: true, err: failed, user: calls, component: held},
		"memory, for a while":          {delayed: true, err: failed, user: queued, component: failed.Cause},
		"memory for itself":            {delayedBody: true, err: failed, user: queued, component: failed.Cause},
		"a queue":                      {queued: true, err: failed, user: queued, component: queued},
		"a queue until the deadline":   {queued: true, isOver: true, err: failed, user: queued, component: queued},
		"a queue, then calls":          {queued: true, waited: true, err: failed, user: calls, component: calls},
		"a queue, then no memory":      {queued: true, refused: true, isOver: true, err: failed, user: held, component: held},
		"no memory":                    {refused: true, delayed: true, err: failed, user: held, component: held},
		"no memory until the deadline": {refused: true, delayed: true, isOver: true, err: failed, user: held, component: failed.Cause},
		"a panic":                      {waited: true, refused: true, delayed: true, isChosen: true, err: panicked, user: "panic", component: "panic"},
	} {
		for user, want := range map[bool]string{true: tc.user, false: tc.component} {
			a := &account{share: &share{tenant: tenant{namespaceTenant, "shop", false}}}
			a.waited.Store(tc.waited)
			a.refused.Store(tc.refused)
			a.delayed.Store(tc.delayed)
			a.queued.Store(tc.queued)
			l := &lease{half: &half{router: &Router{failures: sparselog.New(1)}}, reads: a, isChosen: user}
			l.delayed.Store(tc.delayedBody)
			ctx, cancel := context.WithCancel(t.Context())
			if tc.isOver {
				cancel()
			}
			got := l.explain(ctx, tc.err)
			cancel()
			if got.Error() != want || want != failed.Cause && isChosen(got) != (user || tc.isChosen || tc.queued) {
				t.Errorf("%s: a user: %t: got %v, which is chosen: %t, want %s", name, user, got, isChosen(got), want)
			}
			if rej, ok := errors.AsType[*rejection](got); ok && tc.queued {
				if details := rej.denial().Result.Details; (details != nil && details.RetryAfterSeconds == 1) != user {
					t.Errorf("%s: a user: %t: got the details %v, want Retry-After for a user alone", name, user, details)
				}
			}
		}
	}
}

// TestATurnThatDoesNotCome has a request that reads a large answer while another one does.
func TestATurnThatDoesNotCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Router{memory: newBudget(0), turns: newBudget(2)}
		first, second := r.newAccount(tenant{}, 0), r.newAccount(tenant{}, 0)
		end, err := first.Turn(t.Context())
		if err != nil || first.delayed.Load() {
			t.Errorf("Got the error %v, and it is delayed: %t", err, first.delayed.Load())
		}
		time.AfterFunc(patience/2, func() {
			// The request may be over before it knows whether it gets its turn.
			if !second.delayed.Load() {
				t.Error("It waits, and does not say so")
			}
		})
		if _, err := second.Turn(t.Context()); !errors.Is(err, reads.ErrHeld) || !second.refused.Load() || !second.delayed.Load() {
			t.Errorf("Got the error %v, refused: %t, delayed: %t", err, second.refused.Load(), second.delayed.Load())
		}
		end()
	})
}
