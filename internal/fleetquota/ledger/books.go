package ledger

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	quotav1alpha1 "github.com/postern-dev/postern/pkg/apis/quota/v1alpha1"
)

// The functions of this file only change objects in memory.

// Charged returns the charge of an account: an upper bound of the usage of all workloads of the cluster, including
// those that are admitted and not stored yet.
func Charged(a *quotav1alpha1.FleetAllowance) corev1.ResourceList {
	out := plus(a.Status.Counted, nil)
	for i := range a.Status.Pending {
		addTo(out, a.Status.Pending[i].Extra)
	}
	return out
}

// available returns the allowance, limited to the limit of the quota, which may have been lowered.
func available(a *quotav1alpha1.FleetAllowance) corev1.ResourceList {
	return least(a.Status.Allowance, a.Spec.Hard)
}

// enter charges a demand if the allowance suffices. A demand that adds no usage is always charged.
func enter(a *quotav1alpha1.FleetAllowance, d *Demand) bool {
	extra := Extra(d, a)
	if len(extra) == 0 {
		return true
	}
	if !covers(available(a), only(plus(Charged(a), extra), extra)) {
		return false
	}
	p := d.Pending
	p.Usage, p.Extra = only(d.Usage, a.Spec.Hard), extra
	a.Status.Pending = append(a.Status.Pending, p)
	return true
}

// leave removes the entry of a request that was denied later.
func leave(a *quotav1alpha1.FleetAllowance, request types.UID) bool {
	before := len(a.Status.Pending)
	a.Status.Pending = slices.DeleteFunc(a.Status.Pending, func(p quotav1alpha1.Pending) bool { return p.Request == request })
	return len(a.Status.Pending) != before
}

// adopt sets the allowance of the account to that in the hub. It ignores an allowance whose sequence is not higher than
// that of the account, because that allowance is older.
func adopt(a *quotav1alpha1.FleetAllowance, o *offer) bool {
	if o == nil || o.quota != a.Status.Quota || o.sequence <= a.Status.Sequence {
		return false
	}
	a.Status.Allowance, a.Status.Sequence = only(o.allowance, a.Spec.Hard), o.sequence
	return true
}

// recount sets the counted usage to the usage in the caches, and removes the entries that the caches have settled. It
// does nothing if another replica has counted with newer caches, because that count may have settled an entry whose
// object is not in these caches yet.
func recount(a *quotav1alpha1.FleetAllowance, c Count, dead map[types.UID]bool) bool {
	if !newer(c.From, a.Status.Caches) {
		return false
	}
	total := only(c.Total, a.Spec.Hard)
	var left []quotav1alpha1.Pending
	reached := map[types.UID]corev1.ResourceList{}
	for _, p := range a.Status.Pending {
		if dead[p.Request] || settled(&p, c) {
			continue
		}
		base, ok := reached[p.UID]
		if !ok {
			base = c.Objects[p.UID].Usage
		}
		p.Extra = only(minus(p.Usage, base), a.Spec.Hard)
		reached[p.UID] = most(base, p.Usage)
		left = append(left, p)
	}
	if same(total, a.Status.Counted) && slices.EqualFunc(left, a.Status.Pending, func(x, y quotav1alpha1.Pending) bool {
		return x.Request == y.Request && same(x.Extra, y.Extra)
	}) {
		return false
	}
	a.Status.Counted, a.Status.Pending, a.Status.Caches = total, left, c.To
	return true
}

// settled reports whether the caches show that the change of a request was stored or can never be stored: the API
// server stores a change only over the resource version that the admission plugins saw.
func settled(p *quotav1alpha1.Pending, c Count) bool {
	found, ok := c.Objects[p.UID]
	switch {
	case p.UID == "":
		return false
	case p.From == "":
		return ok
	case ok:
		return compare(found.ResourceVersion, p.From) > 0
	}
	// The object existed at that version and has been deleted.
	return compare(c.From[key(p)], p.From) >= 0
}

// key returns the key of a resource in Count.From and Count.To.
func key(p *quotav1alpha1.Pending) string {
	if p.Group == "" {
		return p.Resource
	}
	return p.Resource + "." + p.Group
}

// newer reports whether each resource version in from is at least as new as the version of the same resource in than.
func newer(from, than map[string]string) bool {
	for resource, version := range than {
		if compare(from[resource], version) < 0 {
			return false
		}
	}
	return true
}

// compare compares resource versions. An empty version is older than any other.
func compare(a, b string) int {
	switch {
	case a == b:
		return 0
	case a == "":
		return -1
	case b == "":
		return 1
	}
	order, err := resourceversion.CompareResourceVersion(a, b)
	if err != nil {
		return -1
	}
	return order
}

// find returns the entry of a cluster in a quota, or nil.
func find(q *quotav1alpha1.FleetQuota, cluster string) *quotav1alpha1.ClusterAllowance {
	i := slices.IndexFunc(q.Status.Clusters, func(c quotav1alpha1.ClusterAllowance) bool { return c.Name == cluster })
	if i < 0 {
		return nil
	}
	return &q.Status.Clusters[i]
}

// claimed returns the sum of the allowances of all clusters.
func claimed(q *quotav1alpha1.FleetQuota) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := range q.Status.Clusters {
		addTo(out, q.Status.Clusters[i].Allowance)
	}
	return out
}

// used returns the sum of the last reported usage of all clusters.
func used(q *quotav1alpha1.FleetQuota) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := range q.Status.Clusters {
		addTo(out, q.Status.Clusters[i].Used)
	}
	return out
}

// numbered sets a sequence higher than every earlier one, in the hub and in the cluster.
func numbered(q *quotav1alpha1.FleetQuota, e *quotav1alpha1.ClusterAllowance, remembered int64) {
	q.Status.Sequence = max(q.Status.Sequence, remembered, e.Sequence) + 1
	e.Sequence = q.Status.Sequence
}

// total updates the sums and the texts in the status of a quota.
func total(q *quotav1alpha1.FleetQuota) {
	slices.SortFunc(q.Status.Clusters, func(a, b quotav1alpha1.ClusterAllowance) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	q.Status.Claimed, q.Status.Used = of(claimed(q), q.Spec.Hard), of(used(q), q.Spec.Hard)
	q.Status.Summary = quotav1alpha1.Summary{Limit: Text(q.Spec.Hard), Used: Text(q.Status.Used), Claimed: Text(q.Status.Claimed)}
}

// wantedByOthers returns the unmet demand of the other clusters.
func wantedByOthers(q *quotav1alpha1.FleetQuota, cluster string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := range q.Status.Clusters {
		if c := &q.Status.Clusters[i]; c.Name != cluster && len(c.Wanted) > 0 {
			addTo(out, c.Wanted)
		}
	}
	return out
}

// Adds reports whether a demand increases the usage of a limited resource.
func Adds(d *Demand, a *quotav1alpha1.FleetAllowance) bool { return len(Extra(d, a)) > 0 }

// Extra returns the increase of limited resources by a demand.
func Extra(d *Demand, a *quotav1alpha1.FleetAllowance) corev1.ResourceList {
	return only(minus(d.Usage, d.Old), a.Spec.Hard)
}

// Fits reports whether a demand would be admitted according to the account: within the allowance, or within the part of
// the limit that no cluster has claimed. Fits changes nothing.
func Fits(a *quotav1alpha1.FleetAllowance, d *Demand) bool {
	extra := Extra(d, a)
	wanted := only(plus(Charged(a), extra), extra)
	return covers(available(a), wanted) || covers(a.Spec.Hard, only(plus(wanted, a.Spec.Others), extra))
}
