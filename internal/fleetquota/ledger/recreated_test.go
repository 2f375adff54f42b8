package ledger_test

import (
	"errors"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fleetquota/ledger"
)

// TestRecreatedQuota deletes a quota, and creates another one with the same name and a lower limit, while clusters have
// allowances of the first one. No allowance of the first quota is used after a cluster has seen the second one, whatever
// its sequence, also not by a replica that has seen nothing.
func TestRecreatedQuota(t *testing.T) {
	h := hubOf()
	h.quota.Status.Sequence = 1_000_000
	east, west := siteOf(h, "east"), siteOf(h, "west")
	other := east.boot()
	east.admits(t, "e1", 300)
	west.admits(t, "w1", 100)
	if err := east.submit(t, other, "e2", cpus(1)); err != nil {
		t.Fatal(err)
	}
	// The offer of the first quota that the other replica has is newer than what the account has adopted.
	if err := other.Claim(t.Context(), []*ledger.Demand{}); err != nil {
		t.Fatal(err)
	}
	east.look(t)
	if got := east.account.Status.Sequence; got < 1_000_000 {
		t.Fatalf("Got the sequence %d, want that of the first quota", got)
	}
	second := hubOf().quota
	second.UID, second.ResourceVersion, second.Spec.Hard, second.Status.Sequence = "second", "5000", cpus(350), 0
	h.quota = second

	west.look(t)
	west.has(t, 100)
	east.look(t)
	// East uses 301 CPUs, and gets what West has left.
	east.has(t, 250)
	if s := east.account.Status; s.Quota != "second" || s.Sequence > 10 || amount(ledger.Charged(east.account)) != 301_000 {
		t.Errorf("Got %+v, want the second quota, a sequence of it, and all workloads charged", s)
	}
	var short *ledger.ShortError
	if err := east.submit(t, other, "e3", cpus(1)); !errors.As(err, &short) {
		t.Errorf("Got %v from a replica that has seen the first quota, want a refusal", err)
	}
	east.refuses(t, "e3", 1)
	west.refuses(t, "w2", 1)
	east.has(t, 250)
	east.store("e1", nil)
	for range 2 {
		east.look(t)
		west.look(t)
	}
	west.admits(t, "w2", 249)
	west.refuses(t, "w3", 1)
	if err := east.submit(t, other, "e3", cpus(1)); !errors.As(err, &short) {
		t.Errorf("Got %v for CPU 351 of 350, want a refusal", err)
	}
}

// TestRecreatedQuotasOfFleets replaces the quotas of fleets with faults. The clusters go on to use what they have until
// they see the new quota. The allowances of the new quota are never more than its limit, and when the workloads of the
// first quota have ended the whole limit is available.
func TestRecreatedQuotasOfFleets(t *testing.T) {
	for seed := range uint64(20) {
		s := randomSetting(seed + 1)
		w := newWorld(s)
		w.live()
		w.run(time.Minute)
		w.unchecked = true
		w.hub.change(s.limit, "second")
		for w.now < w.duration+10*time.Minute {
			w.run(w.now + time.Second)
			if claimed := w.hub.claimed(); claimed > s.limit*1000 {
				t.Fatalf("Seed %d: the allowances are %dm of %d CPUs", s.seed, claimed, s.limit)
			}
		}
		w.unchecked = false
		w.recover()
		w.end()
		if w.broken != "" {
			t.Errorf("Seed %d: %s", s.seed, w.broken)
		}
	}
}
