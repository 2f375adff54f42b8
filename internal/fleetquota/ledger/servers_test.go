package ledger_test

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/postern-dev/postern/internal/fleetquota/ledger"
	quotav1alpha1 "github.com/postern-dev/postern/pkg/apis/quota/v1alpha1"
)

// hub is the API server of the hub.
type hub struct {
	*world

	quota *quotav1alpha1.FleetQuota
	// asked is what clusters use, for the policy askHub.
	asked int64
}

func (h *hub) allowance(name string) int64 {
	for i := range h.quota.Status.Clusters {
		if c := &h.quota.Status.Clusters[i]; c.Name == name {
			return amount(c.Allowance)
		}
	}
	return 0
}

// copyOf returns a copy of a quota. Deep copies of the statuses of large fleets would take most of the time, and small
// fleets check that nothing modifies an amount that it shares.
func copyOf(q *quotav1alpha1.FleetQuota) *quotav1alpha1.FleetQuota {
	if len(q.Status.Clusters) <= 60 {
		return q.DeepCopy()
	}
	out := *q
	out.Status.Clusters = slices.Clone(q.Status.Clusters)
	return &out
}

func conflict() error {
	return apierrors.NewConflict(schema.GroupResource{Resource: "quotas"}, quotaName, nil)
}

func next(version string) string {
	n, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		panic(err)
	}
	return strconv.FormatInt(n+1, 10)
}

// link is the connection of a cluster to the hub.
type link struct {
	*cluster
}

// Get implements ledger.Hub.
func (l link) Get(ctx context.Context, _ string) (*quotav1alpha1.FleetQuota, error) {
	var out *quotav1alpha1.FleetQuota
	l.stats.hubCalls++
	err := l.call(ctx, l.latency, l.reachable, func() error {
		out = copyOf(l.hub.quota)
		return nil
	})
	return out, err
}

// Update implements ledger.Hub.
func (l link) Update(ctx context.Context, q *quotav1alpha1.FleetQuota) (*quotav1alpha1.FleetQuota, error) {
	q = copyOf(q)
	l.stats.hubCalls++
	var out *quotav1alpha1.FleetQuota
	err := l.call(ctx, l.latency, l.reachable, func() error {
		h := &l.hub
		if q.ResourceVersion != h.quota.ResourceVersion || q.UID != h.quota.UID {
			l.stats.hubConflicts++
			return conflict()
		}
		l.stats.hubWrites++
		q.Spec, q.ResourceVersion = h.quota.Spec, next(q.ResourceVersion)
		h.quota = q
		out = copyOf(q)
		l.check(nil)
		l.check(l.cluster)
		return nil
	})
	return out, err
}

// cluster is a cluster with its API server.
type cluster struct {
	*world

	name     string
	id       types.UID
	cut      bool
	account  *quotav1alpha1.FleetAllowance
	version  int64
	stored   map[types.UID]object
	names    []types.UID
	used     int64
	replicas []*replica
}

// object is a stored workload.
type object struct {
	version string
	cpus    int64
}

func newCluster(w *world, i int) *cluster {
	c := &cluster{world: w, name: "cluster-" + strconv.Itoa(i), id: uid(i), version: 1, stored: map[types.UID]object{}}
	c.account = &quotav1alpha1.FleetAllowance{
		ObjectMeta: metav1.ObjectMeta{Name: quotaName, UID: "account", ResourceVersion: "1"},
		Spec:       quotav1alpha1.FleetAllowanceSpec{Hard: cpus(w.limit)},
	}
	for range w.replicas {
		r := &replica{cluster: c}
		c.replicas = append(c.replicas, r)
		r.boot()
	}
	return c
}

func (c *cluster) reachable() bool { return !c.cut }

func (c *cluster) inside() bool { return true }

// Get implements ledger.Local.
func (c *cluster) Get(ctx context.Context, _ string) (*quotav1alpha1.FleetAllowance, error) {
	var out *quotav1alpha1.FleetAllowance
	err := c.call(ctx, c.latency/10, c.inside, func() error {
		out = c.account.DeepCopy()
		return nil
	})
	return out, err
}

// Update implements ledger.Local.
func (c *cluster) Update(ctx context.Context, a *quotav1alpha1.FleetAllowance) (*quotav1alpha1.FleetAllowance, error) {
	a = a.DeepCopy()
	var out *quotav1alpha1.FleetAllowance
	err := c.call(ctx, c.latency/10, c.inside, func() error {
		if a.ResourceVersion != c.account.ResourceVersion {
			return conflict()
		}
		a.ResourceVersion = next(a.ResourceVersion)
		c.account = a
		c.stats.largestPending = max(c.stats.largestPending, len(a.Status.Pending))
		out = a.DeepCopy()
		c.check(c)
		return nil
	})
	return out, err
}

// add changes what the workloads use.
func (c *cluster) add(n int64) {
	c.used += n
	c.world.used += n
}

// store stores, replaces or removes (n < 0) a workload, and tells the caches of the replicas.
func (c *cluster) store(id types.UID, n int64) {
	c.count()
	c.version++
	old := c.stored[id]
	o := object{version(c.version), n}
	if n < 0 {
		delete(c.stored, id)
		c.add(-old.cpus)
	} else {
		if old.version == "" {
			c.names = append(c.names, id)
		}
		c.stored[id] = o
		c.add(n - old.cpus)
	}
	c.check(c)
	for _, r := range c.replicas {
		r.tell(id, o, n < 0)
	}
}

// replica is a Postern of a cluster.
type replica struct {
	*cluster

	account *ledger.Account
	threads []*thread
	life    int
	// cache is what the replica knows of the workloads, and seen the version of that.
	cache map[types.UID]object
	seen  int64
	told  time.Duration
}

// boot starts the replica with a fresh list of the workloads.
func (r *replica) boot() {
	w := r.world
	r.life++
	r.cache, r.seen, r.told = map[types.UID]object{}, r.version, w.now
	maps.Copy(r.cache, r.stored)
	r.account = ledger.NewAccount(quotaName, r.cluster, link{r.cluster}, r, ledger.Options{
		Cluster: r.name, ID: func() types.UID { return r.id }, Step: w.step, Heartbeat: w.heartbeat, PendingTimeout: pendingTimeout,
		Now: w.clock(0.8+0.4*w.rng.Float64(), w.around(24*time.Hour)),
		Pause: func(ctx context.Context, most time.Duration) error {
			return sleep(ctx, time.Duration(w.rng.Int64N(int64(most))))
		},
	})
	if w.policy != allowances {
		return
	}
	r.every(func() time.Duration { return 2 * time.Second }, (*ledger.Account).Recount)
	r.every(func() time.Duration { return 2 * time.Second }, func(a *ledger.Account, ctx context.Context) error {
		for _, p := range a.Overdue(50) {
			_ = a.LookUp(ctx, &p)
		}
		return nil
	})
	r.every(func() time.Duration { return ledger.Spread(w.hub.quota, w.heartbeat/3) }, (*ledger.Account).Maintain)
}

// every runs a task of the account again and again.
func (r *replica) every(interval func() time.Duration, task func(*ledger.Account, context.Context) error) {
	account := r.account
	r.threads = append(r.threads, r.start(func(ctx context.Context) {
		for {
			pause := interval()
			if sleep(ctx, pause/2+time.Duration(r.rng.Int64N(int64(pause)))) != nil {
				return
			}
			_ = task(account, ctx)
		}
	}))
}

// crash kills the replica and starts it again.
func (r *replica) crash() {
	for _, th := range r.threads {
		th.stop()
	}
	r.threads = nil
	r.stats.replicasRestarts++
	r.boot()
}

// tell brings an event to the cache, in order and with a delay.
func (r *replica) tell(id types.UID, o object, gone bool) {
	delay := r.around(r.latency)
	if r.chance(r.stalls) {
		delay += r.around(20 * time.Second)
	}
	r.told = max(r.told, r.now+delay)
	life, at := r.life, r.version
	r.after(r.told-r.now, func() {
		if r.life != life {
			return
		}
		r.seen = at
		if r.cache[id] = o; gone {
			delete(r.cache, id)
		}
	})
}

// Count implements ledger.Workloads.
func (r *replica) Count(_ *quotav1alpha1.FleetAllowanceSpec, asked map[types.UID]bool) (ledger.Count, bool) {
	out := ledger.Count{Objects: map[types.UID]ledger.Counted{}}
	var sum int64
	for id, o := range r.cache {
		sum += o.cpus
		if asked[id] {
			out.Objects[id] = ledger.Counted{ResourceVersion: o.version, Usage: cpus(o.cpus)}
		}
	}
	out.Total = cpus(sum)
	out.From = map[string]string{"jobs": version(r.seen)}
	out.To = out.From
	return out, true
}

// Stored implements ledger.Workloads.
func (r *replica) Stored(ctx context.Context, p *quotav1alpha1.Pending) (types.UID, string, error) {
	var id types.UID
	var at string
	err := r.call(ctx, r.latency/10, r.inside, func() error {
		if o, ok := r.stored[p.UID]; ok {
			id, at = p.UID, o.version
		}
		return nil
	})
	return id, at, err
}
