package ledger_test

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/postern-dev/postern/internal/fleetquota/ledger"
	quotav1alpha1 "github.com/postern-dev/postern/pkg/apis/quota/v1alpha1"
)

// live starts the clients and the faults of a fleet.
func (w *world) live() {
	for i, c := range w.clusters {
		w.start(func(ctx context.Context) {
			for sleep(ctx, w.around(w.every)) == nil {
				if w.now > w.duration {
					return
				}
				if w.busy > 0 && (i+int(w.now/(2*time.Minute))*w.busy)%len(w.clusters) >= w.busy {
					continue
				}
				w.start(c.request)
			}
		})
		w.start(func(ctx context.Context) {
			for sleep(ctx, time.Second) == nil && w.now < w.duration {
				if w.chance(w.partitions) {
					c.cut = true
					w.after(w.around(20*time.Second), func() { c.cut = false })
				}
				for _, r := range c.replicas {
					if w.chance(w.crashes) {
						r.crash()
					}
				}
			}
		})
	}
}

// request is one request of a client: a new workload, another size, or a deletion.
func (c *cluster) request(ctx context.Context) {
	size := 1 + c.rng.Int64N(c.largest)
	if len(c.stored) > 0 && c.chance(300) {
		id := c.names[c.rng.IntN(len(c.names))]
		if _, ok := c.stored[id]; ok {
			c.update(ctx, id, size)
			return
		}
	}
	c.number++
	id := uid(c.number)
	if !c.admit(ctx, id, "", 0, size) || c.chance(c.dropped) {
		return
	}
	// Other plugins, other webhooks, the storage: anything within the time-out of the request.
	if sleep(ctx, c.delay()) != nil {
		return
	}
	c.stats.created++
	c.store(id, size)
	if c.keeps > 0 {
		c.after(c.around(c.keeps), func() {
			if _, ok := c.stored[id]; ok && !c.still {
				c.release(c.stored[id].cpus)
				c.stats.deleted++
				c.store(id, -1)
			}
		})
	}
}

// delay is the time between the decision and the storage. It is usually short.
func (c *cluster) delay() time.Duration {
	if c.chance(20) {
		return time.Duration(c.rng.Int64N(int64(requestTimeout - 10*callTimeout)))
	}
	return c.around(c.latency)
}

// update changes the size of a workload. Like the API server, it begins again if the workload has changed meanwhile.
func (c *cluster) update(ctx context.Context, id types.UID, size int64) {
	for range 3 {
		old, ok := c.stored[id]
		if !ok {
			return
		}
		if size > old.cpus && !c.admit(ctx, id, old.version, old.cpus, size) {
			return
		}
		if c.chance(c.dropped) || sleep(ctx, c.delay()) != nil {
			return
		}
		if now, ok := c.stored[id]; ok && now.version == old.version {
			if size < old.cpus {
				c.release(old.cpus - size)
			}
			c.stats.updated++
			c.store(id, size)
			return
		}
	}
}

// admit asks a replica.
func (c *cluster) admit(ctx context.Context, id types.UID, from string, old, size int64) bool {
	began := c.now
	done := func(o ledger.Outcome, err error) bool {
		c.stats.waits = append(c.stats.waits, c.now-began)
		switch {
		case o == ledger.Refused && err != nil:
			c.stats.failed++
		default:
			c.stats.decided[o]++
		}
		if o == ledger.Refused && c.world.used+size-old <= c.limit {
			c.stats.refusedWithRoom++
		}
		return o != ledger.Refused
	}
	switch c.policy {
	case staticShares:
		if c.used+size-old > c.limit/int64(len(c.clusters)) {
			return done(ledger.Refused, nil)
		}
		return done(ledger.Within, nil)
	case askHub:
		return done(c.askHub(ctx, size-old))
	case allowances:
	}
	r := c.replicas[c.rng.IntN(len(c.replicas))]
	c.number++
	demand := &ledger.Demand{
		Pending: quotav1alpha1.Pending{Request: uid(c.number), Resource: "jobs", UID: id, From: from, Usage: cpus(size)},
		Old:     cpus(old),
	}
	// The decision dies with the replica, and the client waits for it.
	var outcome ledger.Outcome
	var err error
	answered := false
	th := r.start(func(inside context.Context) {
		var rest []*ledger.Demand
		rest, outcome, err = r.account.Decide(inside, []*ledger.Demand{demand})
		if len(rest) > 0 {
			outcome = ledger.Refused
			if ledger.IsShortOrAway(err) {
				err = nil
			}
		}
		answered = true
	})
	r.threads = append(r.threads, th)
	for !answered && !th.dead && c.now-began < 5*callTimeout {
		if sleep(ctx, c.latency/10) != nil {
			return false
		}
	}
	if !answered || th.dead {
		return done(ledger.Refused, errCrashed)
	}
	return done(outcome, err)
}

// askHub charges the hub for each request, by compare-and-swap.
func (c *cluster) askHub(ctx context.Context, more int64) (ledger.Outcome, error) {
	for range 20 {
		var read int64
		var at string
		c.stats.hubCalls++
		err := c.call(ctx, c.latency, c.reachable, func() error {
			read, at = c.hub.asked, c.hub.quota.ResourceVersion
			return nil
		})
		if err != nil {
			return ledger.Refused, err
		}
		if read+more > c.limit {
			return ledger.Refused, nil
		}
		c.stats.hubCalls++
		swapped := false
		err = c.call(ctx, c.latency, c.reachable, func() error {
			if c.hub.quota.ResourceVersion != at {
				c.stats.hubConflicts++
				return nil
			}
			c.stats.hubWrites++
			swapped = true
			c.hub.quota.ResourceVersion = next(at)
			c.hub.asked += more
			return nil
		})
		if err != nil {
			return ledger.Refused, err
		}
		if swapped {
			return ledger.Claimed, nil
		}
		if sleep(ctx, c.around(c.latency)) != nil {
			return ledger.Refused, errCrashed
		}
	}
	return ledger.Refused, errTimeout
}

// release gives back what a workload used, for the policy askHub.
func (c *cluster) release(n int64) {
	if c.policy != askHub {
		return
	}
	c.stats.hubCalls++
	c.stats.hubWrites++
	c.hub.asked -= n
	c.hub.quota.ResourceVersion = next(c.hub.quota.ResourceVersion)
}
