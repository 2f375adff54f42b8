package ledger

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	quotav1alpha1 "github.com/postern-dev/postern/pkg/apis/quota/v1alpha1"
)

// Recount replaces what is counted by what the caches have, and removes the entries of requests that LookUp found to be dead.
// See recount.
func (a *Account) Recount(ctx context.Context) error {
	dead := a.dead()
	err := a.change(ctx, func(next *quotav1alpha1.FleetAllowance) bool {
		asked := make(map[types.UID]bool, len(next.Status.Pending))
		for i := range next.Status.Pending {
			asked[next.Status.Pending[i].UID] = true
		}
		// The caches are read after the account: they may be newer than it, never older than what it says of them.
		c, ok := a.workloads.Count(&next.Spec, asked)
		return ok && recount(next, c, dead)
	})
	if err != nil {
		return fmt.Errorf("counting for fleet quota %s: %w", a.name, err)
	}
	return nil
}

// Maintain brings the account and the hub together: it reports, claims what is used beyond the allowance, and returns
// what is not needed.
func (a *Account) Maintain(ctx context.Context) error {
	return a.repeat(ctx, func() (bool, error) { return a.maintainOnce(ctx) })
}

func (a *Account) maintainOnce(ctx context.Context) (bool, error) {
	account, q, e, err := a.open(ctx)
	if err != nil {
		return false, err
	}
	lowered, err := a.lower(ctx, account, q)
	if err != nil {
		return apierrors.IsConflict(err), unlessConflict(err)
	}
	what := ""
	switch missing := minus(only(Charged(account), q.Spec.Hard), e.Allowance); {
	case len(missing) > 0:
		// Workloads that were there before the quota, or that nobody asked about.
		if give := least(missing, minus(q.Spec.Hard, claimed(q))); len(give) > 0 {
			e.Allowance = plus(e.Allowance, give)
			numbered(q, e, account.Status.Sequence)
			what = "claim"
		}
	case !same(lowered, e.Allowance):
		// Nobody in this cluster can use more than that until the hub has a new sequence.
		e.Allowance = lowered
		numbered(q, e, account.Status.Sequence)
		what = "return"
	}
	if what == "" && !a.due(q, e) {
		return false, nil
	}
	if what == "" {
		what = "report"
	}
	a.report(account, q, e)
	if err := a.write(ctx, q, what); err != nil {
		return apierrors.IsConflict(err), unlessConflict(err)
	}
	return false, nil
}

// keep returns the allowance that the cluster should have.
func (a *Account) keep(account *quotav1alpha1.FleetAllowance, q *quotav1alpha1.FleetQuota) corev1.ResourceList {
	charged := only(Charged(account), q.Spec.Hard)
	allowed := only(account.Status.Allowance, q.Spec.Hard)
	unused := minus(allowed, charged)
	step := share(q.Spec.Hard, a.Step)
	wanted := wantedByOthers(q, a.Cluster)
	free := minus(q.Spec.Hard, claimed(q))
	over := minus(claimed(q), q.Spec.Hard)
	out := corev1.ResourceList{}
	for name, have := range allowed {
		spare, has := unused[name]
		want, isWanted := wanted[name]
		left := free[name]
		_, isOver := over[name]
		twice := step[name].DeepCopy()
		twice.Add(step[name])
		switch {
		case !has:
			out[name] = have
		case isOver || isWanted && left.Cmp(want) < 0:
			out[name] = charged[name]
		case spare.Cmp(twice) > 0:
			q := charged[name].DeepCopy()
			q.Add(step[name])
			out[name] = q
		default:
			out[name] = have
		}
	}
	return out
}

// lower lowers the allowance of the account to what it should keep, and returns it. The account comes first: at that
// sequence no replica can raise it again, so the hub may follow at any time.
func (a *Account) lower(ctx context.Context, account *quotav1alpha1.FleetAllowance, q *quotav1alpha1.FleetQuota) (corev1.ResourceList, error) {
	e := find(q, a.Cluster)
	lowered := least(account.Status.Allowance, only(e.Allowance, q.Spec.Hard))
	if keep := a.keep(account, q); !covers(keep, lowered) {
		next := account.DeepCopy()
		next.Status.Allowance = least(keep, lowered)
		next.Status.Summary = summary(next)
		written, err := a.local.Update(ctx, next)
		if err != nil {
			return nil, err // The caller looks at the reason.
		}
		a.remember(written)
		lowered = next.Status.Allowance
	}
	return lowered, nil
}

// due reports whether it is time for the next report. Reports of other replicas count.
func (a *Account) due(q *quotav1alpha1.FleetQuota, e *quotav1alpha1.ClusterAllowance) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.Now()
	if a.beaten.IsZero() || a.beat != e.Heartbeat {
		a.beat, a.beaten = e.Heartbeat, now
		return e.Heartbeat == 0
	}
	return now.Sub(a.beaten) >= Spread(q, a.Heartbeat)
}

// report writes the heartbeat and what is used into the entry of the cluster.
func (a *Account) report(account *quotav1alpha1.FleetAllowance, q *quotav1alpha1.FleetQuota, e *quotav1alpha1.ClusterAllowance) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e.Heartbeat++
	if !a.refused {
		e.Wanted = nil
	}
	a.refused = false
	e.HeartbeatSeconds = a.heartbeatSeconds(q)
	e.Used = of(only(Charged(account), account.Spec.Hard), account.Spec.Hard)
	a.beat, a.beaten = e.Heartbeat, a.Now()
}

// Describe brings the copy of the quota in the account up to date.
func (a *Account) Describe(ctx context.Context, spec quotav1alpha1.FleetAllowanceSpec) error {
	return a.change(ctx, func(next *quotav1alpha1.FleetAllowance) bool {
		if apiequality.Semantic.DeepEqual(next.Spec, spec) {
			return false
		}
		next.Spec = spec
		return true
	})
}

// Others returns what other clusters have claimed of a quota, and what they last reported to use.
func Others(q *quotav1alpha1.FleetQuota, cluster string) (allowances, usage corev1.ResourceList) {
	allowances, usage = corev1.ResourceList{}, corev1.ResourceList{}
	for i := range q.Status.Clusters {
		if c := &q.Status.Clusters[i]; c.Name != cluster {
			addTo(allowances, c.Allowance)
			addTo(usage, c.Used)
		}
	}
	return only(allowances, q.Spec.Hard), only(usage, q.Spec.Hard)
}
