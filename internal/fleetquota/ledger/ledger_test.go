package ledger_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/internal/fleetquota/ledger"
	quotav1alpha1 "github.com/postern-dev/postern/pkg/apis/quota/v1alpha1"
)

// memory is a hub with one quota.
type memory struct {
	quota *quotav1alpha1.FleetQuota
	fail  error
}

func (m *memory) Get(context.Context, string) (*quotav1alpha1.FleetQuota, error) {
	return m.quota.DeepCopy(), m.fail
}

func (m *memory) Update(_ context.Context, q *quotav1alpha1.FleetQuota) (*quotav1alpha1.FleetQuota, error) {
	if q.ResourceVersion != m.quota.ResourceVersion {
		return nil, conflict()
	}
	m.quota = q.DeepCopy()
	m.quota.ResourceVersion = next(q.ResourceVersion)
	return m.quota.DeepCopy(), m.fail
}

func hubOf(clusters ...quotav1alpha1.ClusterAllowance) *memory {
	return &memory{quota: &quotav1alpha1.FleetQuota{
		ObjectMeta: metav1.ObjectMeta{Name: quotaName, UID: "quota", ResourceVersion: "1"},
		Spec:       quotav1alpha1.FleetQuotaSpec{Hard: cpus(500)},
		Status:     quotav1alpha1.FleetQuotaStatus{Sequence: 9, Clusters: clusters},
	}}
}

// TestReclaim takes back the allowance of a cluster that is gone, that is alive, and that has none.
func TestReclaim(t *testing.T) {
	gone := quotav1alpha1.ClusterAllowance{Name: "gone", Allowance: cpus(30), Sequence: 4, Heartbeat: 17, HeartbeatSeconds: 20}
	t.Run("gone", func(t *testing.T) {
		h := hubOf(gone, quotav1alpha1.ClusterAllowance{Name: "other", Allowance: cpus(40), Sequence: 5})
		var waited time.Duration
		got, err := ledger.Reclaim(t.Context(), h, quotaName, "gone", func(_ context.Context, d time.Duration) error {
			waited = d
			return nil
		})
		if err != nil || amount(got) != 30_000 || waited != time.Minute {
			t.Errorf("Got %v, %v after %v, want 30 CPUs after three reports", got, err, waited)
		}
		if s := h.quota.Status; len(s.Clusters) != 1 || s.Clusters[0].Name != "other" || amount(s.Claimed) != 40_000 || s.Sequence != 9 {
			t.Errorf("Got the status %+v, want that of the other cluster", s)
		}
	})
	t.Run("alive", func(t *testing.T) {
		h := hubOf(gone)
		_, err := ledger.Reclaim(t.Context(), h, quotaName, "gone", func(context.Context, time.Duration) error {
			h.quota.Status.Clusters[0].Heartbeat++
			return nil
		})
		if err == nil || !strings.Contains(err.Error(), "cluster gone is alive") || len(h.quota.Status.Clusters) != 1 {
			t.Errorf("Got %v, want a refusal", err)
		}
	})
	t.Run("none", func(t *testing.T) {
		if _, err := ledger.Reclaim(t.Context(), hubOf(), quotaName, "gone", nil); !errors.Is(err, ledger.ErrNoAllowance) {
			t.Errorf("Got %v, want %v", err, ledger.ErrNoAllowance)
		}
	})
}

// TestWithdraw removes the entry of the own cluster only.
func TestWithdraw(t *testing.T) {
	h := hubOf(quotav1alpha1.ClusterAllowance{Name: "a", Sequence: 4}, quotav1alpha1.ClusterAllowance{Name: "b", Sequence: 5})
	for range 2 {
		if err := ledger.Withdraw(t.Context(), h, quotaName, "a", ""); err != nil {
			t.Fatal(err)
		}
		if c := h.quota.Status.Clusters; len(c) != 1 || c[0].Name != "b" {
			t.Errorf("Got %+v, want the other cluster", c)
		}
	}
}

// TestReturnedCluster reclaims the allowance of a cluster that comes back: it may use nothing of it, and claims anew.
func TestReturnedCluster(t *testing.T) {
	w := newWorld(setting{seed: 1, clusters: 1, replicas: 1, limit: 100, heartbeat: 30 * time.Second, step: 0.1, latency: time.Millisecond})
	defer w.end()
	c := w.clusters[0]
	ask := func(n int64) (left int) {
		w.start(func(ctx context.Context) {
			w.number++
			id := uid(w.number)
			rest, _, _ := c.replicas[0].account.Decide(ctx, []*ledger.Demand{{
				Pending: quotav1alpha1.Pending{Request: id, Resource: "jobs", UID: id, Usage: cpus(n)},
			}})
			if left = len(rest); left == 0 {
				c.store(id, n)
			}
		})
		w.run(w.now + time.Minute)
		return left
	}
	if left := ask(60); left != 0 {
		t.Fatal("60 of 100 CPUs are refused")
	}
	c.cut = true
	w.hub.quota.Status.Clusters = []quotav1alpha1.ClusterAllowance{{Name: "other", Sequence: 99, Allowance: cpus(70)}}
	w.hub.quota.Status.Sequence, w.hub.quota.ResourceVersion = 99, next(w.hub.quota.ResourceVersion)
	c.cut = false
	// The cluster uses what an administrator has taken from it.
	w.unchecked = true
	w.run(w.now + 2*time.Minute)
	if got := w.hub.allowance(c.name); got != 30_000 {
		t.Errorf("Got an allowance of %dm, want the 30 CPUs that are left", got)
	}
	if left := ask(1); left != 1 {
		t.Error("A cluster above its allowance admits more")
	}
}
