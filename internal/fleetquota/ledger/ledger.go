// Package ledger shares the limit of a FleetQuota between clusters, and the allowance of a cluster between the replicas
// in it. The README of the plugin has the invariant and the argument for it.
//
// The package works on the objects of the API through small interfaces, so that a simulation can run the same code with
// another network and another clock.
package ledger

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	quotav1alpha1 "github.com/postern-dev/postern/pkg/apis/quota/v1alpha1"
)

// Hub reads and writes FleetQuotas in the API server of the hub. Update replaces the status. Its error is a Conflict of
// the API if the object is not the newest. Any other error means that the object may have been written or not.
type Hub interface {
	Get(ctx context.Context, name string) (*quotav1alpha1.FleetQuota, error)
	Update(ctx context.Context, q *quotav1alpha1.FleetQuota) (*quotav1alpha1.FleetQuota, error)
}

// Local reads and writes FleetAllowances in the API server of the own cluster. Errors of Update are those of Hub.
type Local interface {
	Get(ctx context.Context, name string) (*quotav1alpha1.FleetAllowance, error)
	Update(ctx context.Context, a *quotav1alpha1.FleetAllowance) (*quotav1alpha1.FleetAllowance, error)
}

// Workloads are the stored workloads of the own cluster.
type Workloads interface {
	// Count returns what the workloads in the caches of this replica use, and those of them that are asked for. It
	// returns false if the caches are not synced.
	Count(spec *quotav1alpha1.FleetAllowanceSpec, asked map[types.UID]bool) (Count, bool)
	// Stored returns the UID and the resource version of an object in the API server, not in a cache. The UID of an
	// object that does not exist is empty. No decision waits for Stored.
	Stored(ctx context.Context, p *quotav1alpha1.Pending) (types.UID, string, error)
}

// Count is what caches have.
type Count struct {
	Total   corev1.ResourceList
	Objects map[types.UID]Counted
	// From and To are resource versions of the caches, by resource: the content of a cache is at least as new as From,
	// and at most as new as To.
	From, To map[string]string
}

// Counted is an object in a cache.
type Counted struct {
	ResourceVersion string
	Usage           corev1.ResourceList
}

// Demand is an admission request for resources.
type Demand struct {
	// Pending identifies the request and the object, and has its usage after the request. Pending.Extra is ignored.
	quotav1alpha1.Pending
	// Old is what the object used before the request.
	Old corev1.ResourceList
	// Ended, unless nil, reports whether nobody waits for the decision any more. Then nothing is charged or claimed.
	Ended func() bool
}

func (d *Demand) ended() bool { return d.Ended != nil && d.Ended() }

// Options are the settings of an account.
type Options struct {
	// Cluster is the name of the own cluster.
	Cluster string
	// ID, unless nil, returns what distinguishes the cluster from another one with the same name by mistake, or "" if that
	// is not known.
	ID func() types.UID
	// Step is the part of the limit that is claimed in addition to what is needed.
	Step float64
	// Heartbeat is the time between two reports to the hub. See Spread.
	Heartbeat time.Duration
	// PendingTimeout is the time after which a request that the API server has not stored is no longer expected. It is
	// measured by each replica since it saw the request first.
	PendingTimeout time.Duration
	// Now and Pause are the clock. Pause waits for a random time, so that writers in conflict do not meet again, and
	// returns an error when the context ends.
	Now   func() time.Time
	Pause func(ctx context.Context, most time.Duration) error
	// Observe, unless nil, is called for each write to the hub: what it was for, and its error.
	Observe func(what string, err error)
}
