package ledger_test

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/postern-dev/postern/internal/fleetquota/ledger"
	quotav1alpha1 "github.com/postern-dev/postern/pkg/apis/quota/v1alpha1"
)

// TestEnded has a request end between two attempts to charge it together with another one. Only the other one is charged,
// and nothing is claimed for a request that has ended.
func TestEnded(t *testing.T) {
	s := siteOf(hubOf(), "east")
	s.admits(t, "stored", 20)
	ended := false
	replica := ledger.NewAccount(quotaName, s, s.hub, s, ledger.Options{
		Cluster: s.name, Step: 0.1, Heartbeat: 30 * time.Second, PendingTimeout: time.Hour, Now: time.Now,
		// The request ends during the pause after a conflict.
		Pause: func(context.Context, time.Duration) error { ended = true; return nil },
	})
	if err := replica.Recount(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Another replica writes, so the next write of this one is a conflict.
	s.account.ResourceVersion = next(s.account.ResourceVersion)
	demand := func(id types.UID, n int64, ended func() bool) *ledger.Demand {
		return &ledger.Demand{Pending: quotav1alpha1.Pending{Request: id, Resource: "jobs", UID: id, Usage: cpus(n)}, Ended: ended}
	}
	gone := demand("gone", 1, func() bool { return ended })
	rest, err := replica.Charge(t.Context(), []*ledger.Demand{gone, demand("other", 2, nil)})
	if err != nil || len(rest) != 1 || rest[0] != gone {
		t.Errorf("Got %d demands and %v, want the one that has ended", len(rest), err)
	}
	if p := s.account.Status.Pending; !ended || len(p) != 1 || p[0].Request != "other" {
		t.Errorf("Got the entries %+v, want that of the other request", p)
	}
	before := s.hub.quota.ResourceVersion
	if _, _, err := replica.Decide(t.Context(), []*ledger.Demand{demand("large", 400, func() bool { return true })}); err != nil {
		t.Errorf("Got %v, want none", err)
	}
	if p := s.account.Status.Pending; len(p) != 1 || s.hub.quota.ResourceVersion != before {
		t.Errorf("Got the entries %+v, and version %s of the quota, want no claim", p, s.hub.quota.ResourceVersion)
	}
}
