package ledger_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/postern-dev/postern/internal/fleetquota/ledger"
	quotav1alpha1 "github.com/postern-dev/postern/pkg/apis/quota/v1alpha1"
)

// site is a cluster whose caches are never late, and whose API server stores text. It has one replica or more.
type site struct {
	name    string
	hub     *memory
	account *quotav1alpha1.FleetAllowance
	replica *ledger.Account
	objects map[types.UID]ledger.Counted
	version string
	// writes is how often the account was written.
	writes int
}

func siteOf(h *memory, name string) *site {
	s := &site{name: name, hub: h, objects: map[types.UID]ledger.Counted{}, version: "1"}
	s.account = &quotav1alpha1.FleetAllowance{ObjectMeta: metav1.ObjectMeta{Name: quotaName, ResourceVersion: "1"}, Spec: quotav1alpha1.FleetAllowanceSpec{Hard: h.quota.Spec.Hard}}
	s.replica = s.boot()
	return s
}

// boot returns another replica.
func (s *site) boot() *ledger.Account {
	return ledger.NewAccount(quotaName, s, s.hub, s, s.options())
}

func (s *site) options() ledger.Options {
	return ledger.Options{
		Cluster: s.name, Step: 0.1, Heartbeat: 30 * time.Second, PendingTimeout: time.Hour, Now: time.Now,
		Pause: func(ctx context.Context, _ time.Duration) error { return ctx.Err() },
	}
}

// Get implements ledger.Local.
func (s *site) Get(context.Context, string) (*quotav1alpha1.FleetAllowance, error) {
	return s.account.DeepCopy(), nil
}

// Update implements ledger.Local.
func (s *site) Update(_ context.Context, a *quotav1alpha1.FleetAllowance) (*quotav1alpha1.FleetAllowance, error) {
	if a.ResourceVersion != s.account.ResourceVersion {
		return nil, conflict()
	}
	text, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	s.account = &quotav1alpha1.FleetAllowance{}
	if err := json.Unmarshal(text, s.account); err != nil {
		return nil, err
	}
	s.account.ResourceVersion = next(a.ResourceVersion)
	s.writes++
	return s.account.DeepCopy(), nil
}

// Count implements ledger.Workloads.
func (s *site) Count(*quotav1alpha1.FleetAllowanceSpec, map[types.UID]bool) (ledger.Count, bool) {
	at := map[string]string{"jobs": s.version}
	out := ledger.Count{Total: corev1.ResourceList{}, Objects: s.objects, From: at, To: at}
	for _, o := range s.objects {
		out.Total = ledger.Sum(out.Total, o.Usage)
	}
	return out, true
}

// Stored implements ledger.Workloads.
func (s *site) Stored(context.Context, *quotav1alpha1.Pending) (types.UID, string, error) {
	return "", "", nil
}

// submit creates or changes an object, and stores it if it is admitted.
func (s *site) submit(tb testing.TB, replica *ledger.Account, id types.UID, usage corev1.ResourceList) error {
	tb.Helper()
	old := s.objects[id]
	rest, _, err := replica.Decide(tb.Context(), []*ledger.Demand{{
		Pending: quotav1alpha1.Pending{Request: id + "@" + types.UID(s.version), Resource: "jobs", UID: id, From: old.ResourceVersion, Usage: usage}, Old: old.Usage,
	}})
	if (len(rest) > 0) != (err != nil) {
		tb.Fatalf("Cluster %s: got %d demands and %v", s.name, len(rest), err)
	}
	if err == nil {
		s.store(id, usage)
	}
	return err
}

// store stores an object, or deletes it if it uses nil.
func (s *site) store(id types.UID, usage corev1.ResourceList) {
	s.version = next(s.version)
	if s.objects[id] = (ledger.Counted{ResourceVersion: s.version, Usage: usage}); usage == nil {
		delete(s.objects, id)
	}
}

// admits wants a change to be admitted, and refuses wants it to be refused because the hub has not enough.
func (s *site) admits(tb testing.TB, id types.UID, n int64) {
	tb.Helper()
	if err := s.submit(tb, s.replica, id, cpus(n)); err != nil {
		tb.Errorf("Cluster %s: got %v for %d CPUs, want them admitted", s.name, err, n)
	}
}

func (s *site) refuses(tb testing.TB, id types.UID, n int64) {
	tb.Helper()
	var short *ledger.ShortError
	if err := s.submit(tb, s.replica, id, cpus(n)); !errors.As(err, &short) {
		tb.Errorf("Cluster %s: got %v for %d CPUs, want them refused", s.name, err, n)
	}
}

// look brings the cluster and the hub together, as the plugin does at intervals.
func (s *site) look(tb testing.TB) {
	tb.Helper()
	q, err := s.hub.Get(tb.Context(), quotaName)
	if err == nil {
		err = s.replica.Describe(tb.Context(), quotav1alpha1.FleetAllowanceSpec{Hard: q.Spec.Hard})
	}
	if err == nil {
		err = s.replica.Recount(tb.Context())
	}
	if err == nil {
		err = s.replica.Maintain(tb.Context())
	}
	if err == nil {
		// The account adopts what Maintain got.
		err = s.replica.Recount(tb.Context())
	}
	if err != nil {
		tb.Fatalf("Cluster %s: %v", s.name, err)
	}
}

// has wants the cluster to have an allowance, in its account and in the hub.
func (s *site) has(tb testing.TB, want int64) {
	tb.Helper()
	var held int64
	for i := range s.hub.quota.Status.Clusters {
		if c := &s.hub.quota.Status.Clusters[i]; c.Name == s.name {
			held = amount(c.Allowance)
		}
	}
	if got := amount(s.account.Status.Allowance); got != want*1000 || held != want*1000 {
		tb.Errorf("Cluster %s has an allowance of %dm, and the hub has %dm for it, want %d", s.name, got, held, want)
	}
}

// limit changes the limit.
func (m *memory) limit(hard corev1.ResourceList) {
	m.quota = m.quota.DeepCopy()
	m.quota.Spec.Hard, m.quota.ResourceVersion = hard, next(m.quota.ResourceVersion)
}

// change gives the hub another limit, or another quota with the same name.
func (h *hub) change(limit int64, uid types.UID) {
	q := h.quota.DeepCopy()
	if uid != q.UID {
		q = hubOf().quota
		q.UID, q.Status.Sequence = uid, 0
	}
	q.Spec.Hard, q.ResourceVersion = cpus(limit), next(h.quota.ResourceVersion)
	h.quota = q
}

// claimed returns the sum of the allowances.
func (h *hub) claimed() (sum int64) {
	for i := range h.quota.Status.Clusters {
		sum += amount(h.quota.Status.Clusters[i].Allowance)
	}
	return sum
}
