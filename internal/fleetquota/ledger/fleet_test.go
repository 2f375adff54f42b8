package ledger_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/postern-dev/postern/internal/fleetquota/ledger"
	quotav1alpha1 "github.com/postern-dev/postern/pkg/apis/quota/v1alpha1"
)

// account is a cluster without other writers.
type account struct{ *quotav1alpha1.FleetAllowance }

func (a *account) Get(context.Context, string) (*quotav1alpha1.FleetAllowance, error) {
	return a.DeepCopy(), nil
}

func (a *account) Update(_ context.Context, next *quotav1alpha1.FleetAllowance) (*quotav1alpha1.FleetAllowance, error) {
	a.FleetAllowance = next.DeepCopy()
	return next.DeepCopy(), nil
}

func accountOf(h ledger.Hub, name string, id types.UID) (*account, *ledger.Account) {
	local := &account{&quotav1alpha1.FleetAllowance{ObjectMeta: metav1.ObjectMeta{Name: quotaName}, Spec: quotav1alpha1.FleetAllowanceSpec{Hard: cpus(500)}}}
	return local, ledger.NewAccount(quotaName, local, h, nothing{}, ledger.Options{
		Cluster: name, ID: func() types.UID { return id }, Heartbeat: 30 * time.Second, Now: time.Now,
		Pause: func(ctx context.Context, _ time.Duration) error { return ctx.Err() },
	})
}

// nothing is a cluster without workloads.
type nothing struct{}

func (nothing) Count(*quotav1alpha1.FleetAllowanceSpec, map[types.UID]bool) (ledger.Count, bool) {
	return ledger.Count{}, true
}

func (nothing) Stored(context.Context, *quotav1alpha1.Pending) (types.UID, string, error) {
	return "", "", nil
}

func demand(n int64) []*ledger.Demand {
	return []*ledger.Demand{{Pending: quotav1alpha1.Pending{Request: "r", Resource: "jobs", UID: "u", Usage: cpus(n)}}}
}

// TestSameName gives two clusters the same name. The second one gets nothing, and neither uses nor removes what the first
// one has.
func TestSameName(t *testing.T) {
	h := hubOf()
	_, first := accountOf(h, "east", "id-1")
	if rest, _, err := first.Decide(t.Context(), demand(400)); err != nil || len(rest) > 0 {
		t.Fatalf("Got %d and %v for the first cluster", len(rest), err)
	}
	local, second := accountOf(h, "east", "id-2")
	for range 2 {
		rest, _, err := second.Decide(t.Context(), demand(1))
		if !errors.Is(err, ledger.ErrSameName) || len(rest) != 1 {
			t.Errorf("Got %d and %v for the second cluster, want %v", len(rest), err, ledger.ErrSameName)
		}
		if err := second.Maintain(t.Context()); !errors.Is(err, ledger.ErrSameName) {
			t.Errorf("Got %v, want %v", err, ledger.ErrSameName)
		}
	}
	if amount(local.Status.Allowance) != 0 {
		t.Errorf("The second cluster has an allowance of %v", local.Status.Allowance)
	}
	if err := ledger.Withdraw(t.Context(), h, quotaName, "east", "id-2"); err != nil {
		t.Fatal(err)
	}
	if c := h.quota.Status.Clusters; len(c) != 1 || c[0].ID != "id-1" || amount(c[0].Allowance) != 400_000 {
		t.Errorf("Got %+v, want the entry of the first cluster", c)
	}
	// The first cluster is gone, and an administrator takes its allowance back.
	if _, err := ledger.Reclaim(t.Context(), h, quotaName, "east", func(context.Context, time.Duration) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if rest, _, err := second.Decide(t.Context(), demand(1)); err != nil || len(rest) > 0 {
		t.Errorf("Got %d and %v after the first cluster was removed", len(rest), err)
	}
}

// TestEntryWithoutID gives an entry of an older version the ID of its cluster.
func TestEntryWithoutID(t *testing.T) {
	h := hubOf(quotav1alpha1.ClusterAllowance{Name: "east", Sequence: 4, Allowance: cpus(10)})
	_, a := accountOf(h, "east", "id-1")
	if rest, _, err := a.Decide(t.Context(), demand(20)); err != nil || len(rest) > 0 {
		t.Fatalf("Got %d and %v", len(rest), err)
	}
	if c := h.quota.Status.Clusters; len(c) != 1 || c[0].ID != "id-1" {
		t.Errorf("Got %+v, want the ID", c)
	}
}

// TestWithdrawInConflict removes an entry while others write.
func TestWithdrawInConflict(t *testing.T) {
	h := &busy{memory: hubOf(quotav1alpha1.ClusterAllowance{Name: "a", Sequence: 4}), times: 3}
	if err := ledger.Withdraw(t.Context(), h, quotaName, "a", "id"); err != nil || len(h.quota.Status.Clusters) != 0 {
		t.Errorf("Got %v and %+v, want no entry", err, h.quota.Status.Clusters)
	}
}

// busy is a hub with another writer.
type busy struct {
	*memory
	times int
}

func (b *busy) Update(ctx context.Context, q *quotav1alpha1.FleetQuota) (*quotav1alpha1.FleetQuota, error) {
	if b.times--; b.times >= 0 {
		b.quota.ResourceVersion = next(b.quota.ResourceVersion)
	}
	return b.memory.Update(ctx, q)
}

// TestFullQuota adds clusters with the largest entries until there is no room. Then the status is smaller than what etcd
// stores, and the cluster that does not fit is told so.
func TestFullQuota(t *testing.T) {
	const etcd = 1536 << 10
	for _, test := range []struct {
		resources, name, least int
	}{{1, 20, 3000}, {1, 253, 2000}, {4, 20, 1500}, {64, 20, 100}} {
		t.Run(fmt.Sprintf("%d resources, names of %d characters", test.resources, test.name), func(t *testing.T) {
			t.Parallel()
			hard, amounts := corev1.ResourceList{}, corev1.ResourceList{}
			for i := range test.resources {
				name := corev1.ResourceName("requests.example.com/gpu-" + version(int64(10+i)))
				hard[name] = *resource.NewQuantity(math.MaxInt64, resource.DecimalSI)
				amounts[name] = *resource.NewMilliQuantity(math.MaxInt64-7, resource.DecimalSI)
			}
			h := hubOf()
			h.quota.Spec.Hard = hard
			clusters := 0
			// Joining one by one takes long, so most entries are made here.
			batch := test.least / 50
			for ; ; clusters += batch {
				_, a := accountOf(h, strings.Repeat("x", test.name-5)+fmt.Sprintf("%05d", clusters), types.UID(strings.Repeat("i", 36)))
				err := a.Maintain(t.Context())
				if errors.Is(err, ledger.ErrFull) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				for i := range batch {
					c := quotav1alpha1.ClusterAllowance{
						Name: strings.Repeat("x", test.name-5) + fmt.Sprintf("%05d", clusters+i), ID: types.UID(strings.Repeat("i", 36)), Allowance: amounts, Sequence: math.MaxInt64 / 2,
						Used: amounts, Wanted: amounts, Heartbeat: math.MaxInt64, HeartbeatSeconds: 86400,
					}
					if i == 0 {
						h.quota.Status.Clusters[clusters] = c
						continue
					}
					h.quota.Status.Clusters = append(h.quota.Status.Clusters, c)
				}
			}
			text, err := json.Marshal(h.quota)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d clusters with %d resources and names of %d characters: %d bytes", clusters, test.resources, test.name, len(text))
			if len(text) > etcd || clusters < test.least {
				t.Errorf("Got %d clusters and %d bytes, want at least %d clusters and at most %d bytes", clusters, len(text), test.least, etcd)
			}
		})
	}
}

// TestFullAccount admits requests with the largest entries, none of which is stored, until the account is full. Then the
// account is smaller than what etcd stores.
func TestFullAccount(t *testing.T) {
	hard, usage := corev1.ResourceList{}, corev1.ResourceList{}
	for i := range 8 {
		name := corev1.ResourceName("requests.example.com/gpu-" + version(int64(10+i)))
		hard[name], usage[name] = resource.MustParse("1E"), resource.MustParse("100000000000001m")
	}
	local, a := accountOf(hubOf(), "east", "id")
	local.Spec.Hard, local.Status.Allowance = hard, hard
	long := func(n, i int) string { return strings.Repeat("x", n-5) + fmt.Sprintf("%05d", i) }
	admitted := 0
	for {
		var batch []*ledger.Demand
		for i := range 50 {
			batch = append(batch, &ledger.Demand{Pending: quotav1alpha1.Pending{
				Request: types.UID(long(36, admitted+i)), Group: long(100, 0), Version: "v1", Resource: long(63, 0), Namespace: long(63, 0), Name: long(253, 0),
				UID: types.UID(long(36, admitted+i)), From: "12345678901234567890", Usage: usage,
			}})
		}
		rest, err := a.Charge(t.Context(), batch)
		if errors.Is(err, ledger.ErrUncounted) {
			break
		}
		if err != nil || len(rest) > 0 {
			t.Fatalf("After %d requests: got %d and %v", admitted, len(rest), err)
		}
		admitted += len(batch)
	}
	text, err := json.Marshal(local.FleetAllowance)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d requests, %d bytes", admitted, len(text))
	if len(text) > 1536<<10 || admitted < 500 {
		t.Errorf("Got %d requests and %d bytes, want at least 500 requests and at most 1.5 MiB", admitted, len(text))
	}
}

// TestSpread stretches the intervals of large fleets only.
func TestSpread(t *testing.T) {
	q := &quotav1alpha1.FleetQuota{}
	for clusters, want := range map[int]time.Duration{2: 30 * time.Second, 300: 30 * time.Second, 3000: 5 * time.Minute} {
		q.Status.Clusters = make([]quotav1alpha1.ClusterAllowance, clusters)
		if got := ledger.Spread(q, 30*time.Second); got != want {
			t.Errorf("Got %v for %d clusters, want %v", got, clusters, want)
		}
	}
}
