package ledger_test

import (
	"context"
	"testing"

	"github.com/postern-dev/postern/internal/fleetquota/ledger"
	"github.com/postern-dev/postern/internal/reads"
	quotav1alpha1 "github.com/postern-dev/postern/pkg/apis/quota/v1alpha1"
)

// contested is an API server, or a hub, with another writer in between the first reads and the writes.
type contested[T any] struct {
	read   func(context.Context, string) (T, error)
	write  func(context.Context, T) (T, error)
	others int
}

func (c *contested[T]) Get(ctx context.Context, name string) (T, error) { return c.read(ctx, name) }

func (c *contested[T]) Update(ctx context.Context, object T) (T, error) {
	if c.others > 0 {
		c.others--
		var none T
		return none, conflict()
	}
	return c.write(ctx, object)
}

// TestOtherWritersAreWaitedFor has requests of other replicas, and of other clusters. Users choose how many there are, so a request
// that meets them must not end as if the API server were away.
func TestOtherWritersAreWaitedFor(t *testing.T) {
	for name, tc := range map[string]struct{ replicas, clusters int }{"none": {}, "replicas": {replicas: 1}, "clusters": {clusters: 1}} {
		t.Run(name, func(t *testing.T) {
			s := siteOf(hubOf(), "east")
			if err := s.replica.Claim(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			replica := ledger.NewAccount(quotaName, &contested[*quotav1alpha1.FleetAllowance]{s.Get, s.Update, tc.replicas},
				&contested[*quotav1alpha1.FleetQuota]{s.hub.Get, s.hub.Update, tc.clusters}, s, s.options())
			waits := false
			ctx := reads.WithQueued(reads.NewContext(t.Context(), reads.Detached(nil)), func() { waits = true })
			rest, _, err := replica.Decide(ctx, []*ledger.Demand{{
				Pending: quotav1alpha1.Pending{Request: "one@1", Resource: "jobs", UID: "one", Usage: cpus(1)},
			}})
			if err != nil || len(rest) > 0 {
				t.Errorf("Got %d demands and the error %v, want that it is charged", len(rest), err)
			}
			if want := tc != (struct{ replicas, clusters int }{}); waits != want {
				t.Errorf("Got that the request waits: %t, want %t", waits, want)
			}
		})
	}
}
