package router

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
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
