package ledger

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/postern-dev/postern/internal/reads"
	quotav1alpha1 "github.com/postern-dev/postern/pkg/apis/quota/v1alpha1"
)

const (
	// maxPending bounds the entries of an account. maxStatus bounds their size.
	maxPending = 2000
	// attempts is how often a claim is repeated whose result other requests of the cluster have used.
	attempts = 3
)

// Account is the account of one quota in one cluster, as one replica uses it. All replicas of the cluster use the same
// FleetAllowance. Its methods may be called at the same time.
type Account struct {
	Options

	name      string
	local     Local
	hub       Hub
	workloads Workloads

	mu sync.Mutex
	// known is the newest FleetAllowance that this replica has written or read. It must not be modified.
	known *quotav1alpha1.FleetAllowance
	// offered is the newest allowance that this replica has read from the hub.
	offered *offer
	// seen is what this replica knows of the entries of the account, by request.
	seen map[types.UID]sighting
	// away is the error of the last call to the hub, and since is when calls began to fail.
	away  error
	since time.Time
	// contact is when the hub answered last.
	contact time.Time
	// beat is the heartbeat of the cluster that this replica saw last, and beaten is when.
	beat   int64
	beaten time.Time
	// refused is true if a request was refused since the last report.
	refused bool
}

// NewAccount returns the account of the quota with a name.
func NewAccount(name string, local Local, hub Hub, workloads Workloads, o Options) *Account {
	return &Account{Options: o, name: name, local: local, hub: hub, workloads: workloads, seen: map[types.UID]sighting{}}
}

// Decide charges demands. It returns the demands that do not fit, and the reason: a ShortError, an AwayError or ErrUncounted.
// Any other error means that the demands that are returned could not be decided. A demand that is not returned is admitted, or has
// ended.
func (a *Account) Decide(ctx context.Context, demands []*Demand) ([]*Demand, Outcome, error) {
	rest, err := a.Charge(ctx, demands)
	if err != nil || len(rest) == 0 {
		return rest, Within, err
	}
	// What was deleted a moment ago may suffice.
	if err := a.Recount(ctx); err != nil {
		return rest, Refused, err
	}
	for range attempts {
		if rest = slices.DeleteFunc(rest, (*Demand).ended); len(rest) == 0 {
			return nil, Refused, nil
		}
		reason := a.Claim(ctx, rest)
		if reason != nil && !IsShortOrAway(reason) {
			return rest, Refused, reason
		}
		// Also after a refusal: another replica may have claimed more, and a part of the demands may fit.
		rest, err = a.Charge(ctx, rest)
		switch {
		case err != nil:
			return rest, Refused, err
		case len(rest) == 0:
			return nil, Claimed, nil
		case reason != nil:
			return rest, Refused, reason
		}
		// Other requests of the cluster used what was claimed.
	}
	return rest, Refused, &ShortError{}
}

// Charge charges the demands that fit into the allowance, in one write, and returns the others and those that have ended.
// An error means that none of the demands is admitted. Some may have been charged all the same; their entries are removed
// later.
func (a *Account) Charge(ctx context.Context, demands []*Demand) ([]*Demand, error) {
	var rest []*Demand
	full := false
	err := a.change(ctx, func(next *quotav1alpha1.FleetAllowance) bool {
		rest = nil
		before := len(next.Status.Pending)
		full = before+len(demands) > maxPending || pendingSize(next, demands) > maxStatus
		if full {
			return false
		}
		for _, d := range demands {
			if d.ended() || !enter(next, d) {
				rest = append(rest, d)
			}
		}
		return len(next.Status.Pending) > before
	})
	if full && err == nil {
		err = ErrUncounted
	}
	if err != nil {
		return demands, fmt.Errorf("charging fleet quota %s: %w", a.name, err)
	}
	return rest, nil
}

// Cancel removes the entries of requests that were charged and are not admitted.
func (a *Account) Cancel(ctx context.Context, requests ...types.UID) error {
	return a.change(ctx, func(next *quotav1alpha1.FleetAllowance) bool {
		changed := false
		for _, request := range requests {
			changed = leave(next, request) || changed
		}
		return changed
	})
}

// change writes the account after a change, until no other writer interferes. The func returns false if it changes
// nothing. An offer of the hub is adopted before the change. The first attempt starts from the known account.
func (a *Account) change(ctx context.Context, f func(*quotav1alpha1.FleetAllowance) bool) error {
	live := false
	return a.repeat(ctx, func() (bool, error) {
		known, offered := a.recall()
		if known == nil || live {
			var err error
			if known, err = a.local.Get(ctx, a.name); err != nil {
				return false, err
			}
			a.remember(known)
		}
		next := draft(known)
		adopted := adopt(next, offered)
		if changed := f(next); !changed && !adopted {
			return false, nil
		}
		next.Status.Summary = summary(next)
		written, err := a.local.Update(ctx, next)
		switch {
		case err == nil:
			a.remember(written)
		case apierrors.IsConflict(err):
			live = true
			return true, nil
		default:
			// The write may have happened.
			a.forget()
		}
		return false, err
	})
}

// repeat repeats an attempt as long as it returns true, because another writer interfered, or what it wrote has to be read again.
// Users choose how many requests other replicas and clusters have to charge.
func (a *Account) repeat(ctx context.Context, attempt func() (again bool, err error)) error {
	backoff := wait.Backoff{Duration: 5 * time.Millisecond, Factor: 2, Steps: 10, Cap: 250 * time.Millisecond}
	for {
		again, err := attempt()
		if err != nil || !again {
			return err
		}
		reads.Queued(ctx)
		if err := a.Pause(ctx, backoff.Step()); err != nil {
			return err
		}
	}
}

// draft returns a copy whose fields may be replaced. What they point to is shared.
func draft(a *quotav1alpha1.FleetAllowance) *quotav1alpha1.FleetAllowance {
	out := *a
	out.Status.Pending = slices.Clone(a.Status.Pending)
	return &out
}

func summary(a *quotav1alpha1.FleetAllowance) quotav1alpha1.Summary {
	return quotav1alpha1.Summary{
		Limit: Text(a.Spec.Hard), Used: Text(of(Charged(a), a.Spec.Hard)), Claimed: Text(of(a.Status.Allowance, a.Spec.Hard)),
	}
}

// Name returns the name of the quota.
func (a *Account) Name() string { return a.name }
