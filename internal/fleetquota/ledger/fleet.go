package ledger

import (
	"errors"
	"fmt"
	"time"

	quotav1alpha1 "github.com/postern-dev/postern/pkg/apis/quota/v1alpha1"
)

const (
	// spacing is the shortest mean time between two reports, over all clusters of a quota.
	spacing = 100 * time.Millisecond
	// maxStatus is the largest size of the status of a quota, and of the entries of an account, in bytes. etcd stores
	// objects of up to 1.5 MiB by default.
	maxStatus = 1_400_000
	// entrySize is the largest size of an entry in bytes, without its name and its amounts. amountSize is the largest
	// size of an amount in bytes, without the name of its resource.
	entrySize, amountSize = 220, 30
	// pendingBase is the largest size of an entry of an account in bytes, without its texts and amounts.
	pendingBase = 180
)

// ErrFull is returned if the status of a quota has no room for another cluster.
var ErrFull = errors.New("the quota has no room for another cluster: use several quotas, each for some of the clusters")

// ErrSameName is returned if another cluster uses the name of this cluster.
var ErrSameName = errors.New("another cluster has the same name")

// Spread returns an interval that is longer in a large fleet, because all clusters write and read the same object,
// whose size grows with their number.
func Spread(q *quotav1alpha1.FleetQuota, interval time.Duration) time.Duration {
	return max(interval, time.Duration(len(q.Status.Clusters))*spacing)
}

func (a *Account) heartbeatSeconds(q *quotav1alpha1.FleetQuota) int64 {
	return int64(Spread(q, a.Heartbeat).Seconds())
}

// room returns ErrFull if a new entry could make the status too large for etcd. With a larger status, the other
// clusters could not return allowance either.
func room(q *quotav1alpha1.FleetQuota, cluster string) error {
	amounts := 0
	for name := range q.Spec.Hard {
		amounts += len(name) + amountSize
	}
	// The rest of the status has the limits, the two sums, and the three texts.
	size := 6*amounts + 3*amounts + entrySize + len(cluster)
	for i := range q.Status.Clusters {
		size += 3*amounts + entrySize + len(q.Status.Clusters[i].Name)
	}
	if size > maxStatus {
		return fmt.Errorf("fleet quota %s with %d clusters: %w", q.Name, len(q.Status.Clusters), ErrFull)
	}
	return nil
}

// identify returns ErrSameName if an entry belongs to another cluster. Two clusters with a common entry would both use
// its allowance.
func (a *Account) identify(e *quotav1alpha1.ClusterAllowance) error {
	if a.ID == nil {
		return nil
	}
	id := a.ID()
	if id == "" || id == e.ID {
		return nil
	}
	if e.ID != "" {
		return fmt.Errorf("fleet quota %s: cluster %s: %w: its kube-system namespace has the UID %s, and that of this cluster %s; "+
			"if this cluster replaces it, take its allowance back first (postern fleetquota reclaim)", a.name, e.Name, ErrSameName, e.ID, id)
	}
	e.ID = id
	return nil
}

// pendingSize returns the largest size of the entries of an account in bytes, with the entries of further demands.
func pendingSize(a *quotav1alpha1.FleetAllowance, demands []*Demand) int {
	limits := 0
	for name := range a.Spec.Hard {
		limits += len(name) + amountSize
	}
	size := 0
	add := func(p *quotav1alpha1.Pending) {
		size += pendingBase + 2*limits + len(p.Request) + len(p.Version) + len(p.Group) + len(p.Resource) + len(p.Namespace) + len(p.Name) + len(p.UID) + len(p.From)
	}
	for i := range a.Status.Pending {
		add(&a.Status.Pending[i])
	}
	for _, d := range demands {
		add(&d.Pending)
	}
	return size
}
