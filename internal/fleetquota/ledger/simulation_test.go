package ledger_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fleetquota/ledger"
	quotav1alpha1 "github.com/postern-dev/postern/pkg/apis/quota/v1alpha1"
)

var (
	seeds = flag.Int("seeds", 100, "number of simulated fleets")
	first = flag.Uint64("first-seed", 1, "the first seed")
)

// seedsInTurn is the number of fleets that are simulated one after the other. Each processor simulates one at a time.
const seedsInTurn = 10

// randomSetting returns a fleet with many faults. Most fleets are small, because a race needs few clusters and much
// contention. Each hundredth fleet is large, and each thousandth one has thousands of clusters.
func randomSetting(seed uint64) setting {
	rng := rand.New(rand.NewPCG(seed, 0))
	s := setting{
		seed: seed, clusters: 1 + rng.IntN(6), replicas: 1 + rng.IntN(3), limit: 10 + rng.Int64N(200),
		duration: 2 * time.Minute, every: time.Second + time.Duration(rng.Int64N(int64(6*time.Second))), keeps: 40 * time.Second,
		largest:      1 + rng.Int64N(20),
		lostRequests: rng.IntN(100), lostAnswers: rng.IntN(200), crashes: rng.IntN(20), partitions: rng.IntN(20), stalls: rng.IntN(200), dropped: rng.IntN(300),
		heartbeat: 30 * time.Second, step: rng.Float64() / 5, latency: 40 * time.Millisecond,
	}
	if seed%100 == 0 {
		s.clusters, s.replicas, s.limit, s.duration, s.every = 60, 2, 900, 30*time.Second, 5*time.Second
	}
	if seed%1000 == 0 {
		s.clusters, s.limit, s.every = 2000+rng.IntN(1000), 30_000, 20*time.Second
	}
	return s
}

// TestNeverAboveTheLimit runs fleets with lost requests, lost answers, late writes, partitions, killed replicas, stale
// caches and wrong clocks. After each change of anything it checks that
//
//   - the workloads of all clusters use no more than the limit,
//   - the allowances in the hub are no more than the limit,
//   - the allowance of a cluster is no more than the hub has for it,
//   - a cluster is charged no more than its allowance, and no less than its stored workloads use.
//
// When the faults have ended, what is charged has to be what is used, and the rest of the limit has to be available.
//
// make fleet-simulation runs 10,000 seeds.
func TestNeverAboveTheLimit(t *testing.T) {
	var created, refused, restarts, conflicts atomic.Int64
	if *seeds < 1 {
		t.Fatalf("-seeds is %d, want 1 or more", *seeds)
	}
	t.Run("fleets", func(t *testing.T) {
		for from := *first; from < *first+uint64(*seeds); from += seedsInTurn {
			until := min(from+seedsInTurn, *first+uint64(*seeds))
			t.Run(fmt.Sprintf("seeds %d to %d", from, until-1), func(t *testing.T) {
				t.Parallel()
				for seed := from; seed < until; seed++ {
					w := newWorld(randomSetting(seed))
					w.live()
					w.run(w.duration)
					w.recover()
					w.end()
					if w.broken != "" {
						t.Fatalf("Seed %d, %+v: %s", w.seed, w.setting, w.broken)
					}
					created.Add(int64(w.stats.created + w.stats.updated))
					refused.Add(int64(w.stats.decided[ledger.Refused]))
					restarts.Add(int64(w.stats.replicasRestarts))
					conflicts.Add(int64(w.stats.hubConflicts))
				}
			})
		}
	})
	if created.Load() == 0 || refused.Load() == 0 || restarts.Load() == 0 || conflicts.Load() == 0 {
		t.Errorf("Got %d workloads, %d refusals, %d restarts and %d conflicts, want some of each", created.Load(), refused.Load(), restarts.Load(), conflicts.Load())
	}
	t.Logf("%d fleets: %d new or changed workloads, %d refusals, %d restarts, %d conflicts at the hub", *seeds, created.Load(), refused.Load(), restarts.Load(), conflicts.Load())
}

// recover ends all faults, waits, and checks that nothing has leaked.
func (w *world) recover() {
	w.lostRequests, w.lostAnswers, w.crashes, w.partitions, w.stalls, w.dropped = 0, 0, 0, 0, 0, 0
	for _, c := range w.clusters {
		c.cut = false
	}
	w.run(w.now + 150*time.Second)
	w.still = true
	end := w.now + time.Minute
	for _, c := range w.clusters {
		for _, r := range c.replicas {
			// An event of a cache may be late from before.
			end = max(end, r.told+10*time.Second)
		}
	}
	w.run(end)
	for _, c := range w.clusters {
		if charged := amount(ledger.Charged(c.account)); w.broken == "" && charged != c.used*1000 {
			w.broken = fmt.Sprintf("after the faults, cluster %s uses %d CPUs and is charged %dm", c.name, c.used, charged)
		}
	}
	if w.broken != "" {
		return
	}
	// One cluster asks for all that is left, until it gets it.
	c := w.clusters[0]
	rest := w.limit - w.used
	if rest == 0 {
		return
	}
	got := false
	w.start(func(ctx context.Context) {
		for !got && sleep(ctx, 5*time.Second) == nil {
			c.number++
			id := uid(c.number)
			left, _, _ := c.replicas[0].account.Decide(ctx, []*ledger.Demand{{
				Pending: quotav1alpha1.Pending{Request: id, Resource: "jobs", UID: id, Usage: cpus(rest)},
			}})
			if got = len(left) == 0; got {
				c.store(id, rest)
			}
		}
	})
	// The others return what they do not use when they look at the hub, which they do rarely in a large fleet.
	w.run(w.now + 5*time.Minute + 2*ledger.Spread(w.hub.quota, 0))
	if !got && w.broken == "" {
		w.broken = fmt.Sprintf("after the faults, a workload of the remaining %d CPUs is refused", rest)
	}
}
