package ledger

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	quotav1alpha1 "github.com/postern-dev/postern/pkg/apis/quota/v1alpha1"
)

// Claim claims what demands need beyond the allowance, and a step more. The account adopts it with its next change. A
// ShortError means that the hub has not enough for all of them; it has given what it has for those that fit.
func (a *Account) Claim(ctx context.Context, demands []*Demand) error {
	return a.repeat(ctx, func() (bool, error) { return a.claimOnce(ctx, demands) })
}

// claimOnce returns true if another writer interfered.
func (a *Account) claimOnce(ctx context.Context, demands []*Demand) (bool, error) {
	account, q, e, err := a.open(ctx)
	if err != nil {
		return false, err
	}
	free := minus(q.Spec.Hard, claimed(q))
	need, short, refused := fit(q, e, free, Charged(account), demands)
	// What is charged may be more than the hub has left: workloads that were there before the quota, or a lower limit.
	missing := least(minus(need, e.Allowance), free)
	lacking := minus(least(need, plus(e.Allowance, missing)), account.Status.Allowance)
	a.note(len(short) > 0)
	switch {
	case len(lacking) == 0 && !refused:
		return false, nil
	case len(lacking) == 0 && covers(e.Wanted, short):
		return false, &ShortError{Free: free}
	}
	if len(missing) > 0 {
		spare := only(least(share(q.Spec.Hard, a.Step), half(minus(free, missing))), missing)
		e.Allowance = plus(e.Allowance, plus(missing, spare))
	}
	if len(lacking) > 0 {
		numbered(q, e, account.Status.Sequence)
	}
	e.Wanted = nil
	if len(short) > 0 {
		e.Wanted = short
	}
	if err := a.write(ctx, q, "claim"); err != nil {
		return apierrors.IsConflict(err), unlessConflict(err)
	}
	if refused {
		return false, &ShortError{Free: free}
	}
	return false, nil
}

// fit returns what is needed for what is charged and for the demands that the hub has room for. It also returns what is
// missing for the others that fit into the limit, and whether there are others.
func fit(q *quotav1alpha1.FleetQuota, e *quotav1alpha1.ClusterAllowance, free, charged corev1.ResourceList, demands []*Demand) (need, short corev1.ResourceList, refused bool) {
	need, short = charged, corev1.ResourceList{}
	for _, d := range demands {
		extra := only(minus(d.Usage, d.Old), q.Spec.Hard)
		more := plus(need, extra)
		// Another resource may be above its limit.
		asked := only(more, extra)
		switch missing := minus(asked, e.Allowance); {
		case covers(free, missing):
			need = more
			continue
		case covers(q.Spec.Hard, asked):
			short = most(short, missing)
		}
		// Nothing that other clusters return suffices for a demand beyond the whole limit.
		refused = true
	}
	return only(need, q.Spec.Hard), short, refused
}

// note remembers that a request was refused, until the next report.
func (a *Account) note(refused bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refused = a.refused || refused
}

// open reads the account and then the quota, and makes sure that the account is one of this quota and that the cluster
// has an entry in it. The caller may change the quota.
//
// The order of the two reads matters: a quota that was deleted and created again has another UID, and UIDs have no order.
// So an account never goes back to a quota that was read before somebody else changed the account.
func (a *Account) open(ctx context.Context) (account *quotav1alpha1.FleetAllowance, q *quotav1alpha1.FleetQuota, e *quotav1alpha1.ClusterAllowance, err error) {
	err = a.repeat(ctx, func() (bool, error) {
		account, err = a.local.Get(ctx, a.name)
		if err != nil {
			return false, fmt.Errorf("reading the account of fleet quota %s: %w", a.name, err)
		}
		a.remember(account)
		q, err = a.hub.Get(ctx, a.name)
		if err := a.heard(err); err != nil {
			return false, err
		}
		return a.match(ctx, account, q)
	})
	if err != nil {
		return nil, nil, nil, err
	}
	return account, q, find(q, a.Cluster), nil
}

// match returns true if it wrote something, and both have to be read again.
func (a *Account) match(ctx context.Context, account *quotav1alpha1.FleetAllowance, q *quotav1alpha1.FleetQuota) (bool, error) {
	if account.Status.Quota != q.UID {
		next := account.DeepCopy()
		next.Status.Quota, next.Status.Allowance, next.Status.Sequence = q.UID, nil, 0
		next.Status.Summary = summary(next)
		_, err := a.local.Update(ctx, next)
		return true, unlessConflict(err)
	}
	e := find(q, a.Cluster)
	if e == nil {
		if err := room(q, a.Cluster); err != nil {
			return false, err
		}
		q.Status.Clusters = append(q.Status.Clusters, quotav1alpha1.ClusterAllowance{Name: a.Cluster, HeartbeatSeconds: a.heartbeatSeconds(q)})
		e = &q.Status.Clusters[len(q.Status.Clusters)-1]
	}
	if err := a.identify(e); err != nil {
		return false, err
	}
	// A new account, and a hub or an account that was restored from a backup: a new sequence makes all that was read
	// before void.
	if account.Status.Sequence == 0 || e.Sequence < account.Status.Sequence {
		numbered(q, e, account.Status.Sequence)
		if err := a.write(ctx, q, "join"); err != nil {
			return true, unlessConflict(err)
		}
	}
	a.propose(q)
	if e = find(q, a.Cluster); e.Sequence <= account.Status.Sequence {
		return false, nil
	}
	return true, a.change(ctx, func(*quotav1alpha1.FleetAllowance) bool { return false })
}

// propose remembers the allowance of the cluster in a quota as an offer.
func (a *Account) propose(q *quotav1alpha1.FleetQuota) {
	e := find(q, a.Cluster)
	if e == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if o := a.offered; o == nil || o.quota != q.UID || o.sequence < e.Sequence {
		a.offered = &offer{quota: q.UID, sequence: e.Sequence, allowance: e.Allowance.DeepCopy()}
	}
}

// write writes the status of a quota, and remembers the allowance in it.
func (a *Account) write(ctx context.Context, q *quotav1alpha1.FleetQuota, what string) error {
	total(q)
	written, err := a.hub.Update(ctx, q)
	if a.Observe != nil {
		a.Observe(what, err)
	}
	if err := a.heard(err); err != nil {
		return err
	}
	a.propose(written)
	return nil
}

// unlessConflict returns nil for a conflict, after which the caller tries again.
func unlessConflict(err error) error {
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}
