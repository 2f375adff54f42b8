package ledger_test

import (
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/postern-dev/postern/internal/fleetquota/ledger"
)

// TestLoweredLimit lowers a limit below what is used, and raises it again. Nothing that is admitted is lost, nobody gets
// more until enough was deleted, and the clusters return what they do not use.
func TestLoweredLimit(t *testing.T) {
	h := hubOf()
	east, west := siteOf(h, "east"), siteOf(h, "west")
	east.admits(t, "e1", 300)
	west.admits(t, "w1", 100)
	east.look(t)
	west.look(t)
	east.has(t, 350)
	west.has(t, 125)

	h.limit(cpus(200))
	for range 3 {
		east.look(t)
		west.look(t)
	}
	east.has(t, 300)
	west.has(t, 100)
	east.refuses(t, "e2", 1)
	west.refuses(t, "w2", 1)
	// A change that adds nothing needs no room.
	east.admits(t, "e1", 300)
	east.admits(t, "e1", 250)
	// What was deleted is above the limit.
	east.refuses(t, "e2", 1)
	for range 2 {
		east.look(t)
		west.look(t)
	}
	east.has(t, 250)
	west.refuses(t, "w2", 1)
	// 200 of 200 CPUs are used now.
	east.admits(t, "e1", 100)
	for range 2 {
		east.look(t)
		west.look(t)
	}
	east.has(t, 100)
	west.has(t, 100)
	east.refuses(t, "e2", 1)
	west.refuses(t, "w2", 1)
	east.store("e1", nil)
	east.look(t)
	west.admits(t, "w2", 100)
	east.refuses(t, "e2", 1)

	h.limit(cpus(600))
	east.look(t)
	west.look(t)
	east.admits(t, "e2", 375)
	for range 2 {
		east.look(t)
		west.look(t)
	}
	east.admits(t, "e3", 25)
	east.refuses(t, "e4", 1)
	west.refuses(t, "w3", 1)
	if got := amount(h.quota.Status.Claimed); got > 600_000 {
		t.Errorf("%dm of 600 CPUs are claimed", got)
	}
}

// TestLoweredLimitOfOneCluster lowers a limit below the allowance of a cluster, which learns it and then loses the hub
// before it can return anything. It uses no more than the limit that it knows.
func TestLoweredLimitOfOneCluster(t *testing.T) {
	h := hubOf()
	east := siteOf(h, "east")
	east.admits(t, "e1", 300)
	east.admits(t, "e1", 10)
	h.limit(cpus(200))
	spec := east.account.Spec
	spec.Hard = cpus(200)
	if err := east.replica.Describe(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	h.fail = apierrors.NewServiceUnavailable("away")
	var away *ledger.AwayError
	if err := east.submit(t, east.replica, "e2", cpus(191)); !errors.As(err, &away) {
		t.Errorf("Got %v for 201 of 200 CPUs, want them refused", err)
	}
	east.admits(t, "e2", 190)
	h.fail = nil
	east.look(t)
	east.refuses(t, "e3", 1)
	h.limit(cpus(300))
	east.look(t)
	east.admits(t, "e3", 100)
	east.refuses(t, "e4", 1)
}

// TestLoweredLimitsOfFleets lowers the limits of fleets with faults to a third. When the workloads have ended, no fleet
// claims more than the lowered limit, and when the limit is raised the whole limit is available.
func TestLoweredLimitsOfFleets(t *testing.T) {
	for seed := range uint64(20) {
		s := randomSetting(seed + 1)
		w := newWorld(s)
		w.live()
		w.run(time.Minute)
		lowered := max(s.limit/3, 1)
		w.hub.change(lowered, "quota")
		w.run(w.duration + 10*time.Minute)
		if claimed := w.hub.claimed(); w.broken == "" && (w.used > lowered || claimed > lowered*1000) {
			t.Errorf("Seed %d: %d CPUs are used and %dm claimed, want at most %d", s.seed, w.used, claimed, lowered)
		}
		w.hub.change(s.limit, "quota")
		w.recover()
		w.end()
		if w.broken != "" {
			t.Errorf("Seed %d: %s", s.seed, w.broken)
		}
	}
}
