package ledger_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/postern-dev/postern/internal/fleetquota/ledger"
	"github.com/postern-dev/postern/internal/reads"
	quotav1alpha1 "github.com/postern-dev/postern/pkg/apis/quota/v1alpha1"
)

// unread is a cluster in which one object is so large that there is no memory to read it.
type unread struct {
	*site
	uid types.UID
}

// Stored implements ledger.Workloads.
func (u unread) Stored(_ context.Context, p *quotav1alpha1.Pending) (types.UID, string, error) {
	if p.UID == u.uid {
		return "", "", fmt.Errorf("reading an answer of the API server: %w", reads.ErrHeld)
	}
	return "", "", nil
}

// TestAnObjectThatCannotBeRead covers requests that were not stored. They are charged no longer than their time-out, also if
// another one cannot be looked up.
func TestAnObjectThatCannotBeRead(t *testing.T) {
	s, now := siteOf(hubOf(), "east"), time.Now()
	options := s.options()
	options.PendingTimeout, options.Now = time.Minute, func() time.Time { return now }
	replica := ledger.NewAccount(quotaName, s, s.hub, unread{s, "one"}, options)
	for _, uid := range []types.UID{"one", "two"} {
		demand := &ledger.Demand{Pending: quotav1alpha1.Pending{Request: uid + "@1", Resource: "jobs", UID: uid, Usage: cpus(1)}}
		if err := replica.Claim(t.Context(), []*ledger.Demand{demand}); err != nil {
			t.Fatal(err)
		}
		if rest, _, err := replica.Decide(t.Context(), []*ledger.Demand{demand}); err != nil || len(rest) > 0 {
			t.Fatalf("Got %d demands and the error %v", len(rest), err)
		}
	}
	for _, looks := range []bool{false, true} {
		waits := false
		if err := replica.Recount(reads.WithQueued(reads.NewContext(t.Context(), reads.Detached(nil)), func() { waits = true })); err != nil {
			t.Fatal(err)
		}
		if waits != looks {
			t.Errorf("Got that a request waits for lookups: %t, want %t: users choose how many there are", waits, looks)
		}
		now = now.Add(2 * time.Minute)
	}
	if got := s.account.Status.Pending; len(got) != 1 || got[0].UID != "one" {
		t.Errorf("Got %+v, want the request that cannot be looked up", got)
	}
}
