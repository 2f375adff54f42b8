package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	quotav1alpha1 "github.com/postern-dev/postern/pkg/apis/quota/v1alpha1"
)

const (
	// minPause and maxPause bound the pause after a conflict with another writer.
	minPause = 5 * time.Millisecond
	maxPause = 250 * time.Millisecond
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
	// seen is when this replica first saw an entry of the account.
	seen map[types.UID]time.Time
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

// offer is the allowance of the cluster in the hub.
type offer struct {
	quota     types.UID
	sequence  int64
	allowance corev1.ResourceList
}

// NewAccount returns the account of the quota with a name.
func NewAccount(name string, local Local, hub Hub, workloads Workloads, o Options) *Account {
	return &Account{Options: o, name: name, local: local, hub: hub, workloads: workloads, seen: map[types.UID]time.Time{}}
}

// Outcome is how a demand was decided.
type Outcome string

const (
	// Within means that the allowance of the cluster was sufficient.
	Within Outcome = "local"
	// Claimed means that more was claimed from the hub.
	Claimed Outcome = "claimed"
	// Refused means that the demand does not fit.
	Refused Outcome = "refused"
)

// ShortError says that the hub has less left than was asked for.
type ShortError struct{ Free corev1.ResourceList }

// Error implements error.
func (e *ShortError) Error() string { return "the other clusters have claimed the rest" }

// AwayError says that the hub does not answer.
type AwayError struct {
	Since time.Time
	Err   error
}

// Error implements error.
func (e *AwayError) Error() string {
	return fmt.Sprintf("the hub has not answered since %s: %v", e.Since.UTC().Format(time.RFC3339), e.Err)
}

// Unwrap returns the error of the last call.
func (e *AwayError) Unwrap() error { return e.Err }

// Decide charges demands. It returns the demands that do not fit, and the reason: a ShortError or an AwayError. Any other
// error means that the demands that are returned could not be decided. A demand that is not returned is admitted.
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
		reason := a.Claim(ctx, rest)
		if reason != nil && !isShortOrAway(reason) {
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

func isShortOrAway(err error) bool {
	var short *ShortError
	var away *AwayError
	return errors.As(err, &short) || errors.As(err, &away)
}

// Charge charges the demands that fit into the allowance, in one write, and returns the others. An error means that none
// of the demands is admitted. Some may have been charged all the same; their entries are removed later.
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
			if !enter(next, d) {
				rest = append(rest, d)
			}
		}
		return len(next.Status.Pending) > before
	})
	if full && err == nil {
		err = errors.New("too many requests are admitted that the caches do not show yet")
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
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		known, offered := a.recall()
		if known == nil || live {
			var err error
			if known, err = a.local.Get(ctx, a.name); err != nil {
				return err //nolint:wrapcheck // the caller wraps it
			}
			a.remember(known)
		}
		next := draft(known)
		adopted := adopt(next, offered)
		if changed := f(next); !changed && !adopted {
			return nil
		}
		next.Status.Summary = summary(next)
		written, err := a.local.Update(ctx, next)
		switch {
		case err == nil:
			a.remember(written)
			return nil
		case !apierrors.IsConflict(err):
			// The write may have happened.
			a.forget()
			return err //nolint:wrapcheck // the caller wraps it
		}
		live = true
		if err := a.Pause(ctx, pause); err != nil {
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

func (a *Account) recall() (*quotav1alpha1.FleetAllowance, *offer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.known, a.offered
}

// remember keeps an account unless a newer one is known.
func (a *Account) remember(read *quotav1alpha1.FleetAllowance) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known != nil && a.known.UID == read.UID && compare(read.ResourceVersion, a.known.ResourceVersion) < 0 {
		return
	}
	a.known = read
	now := a.Now()
	seen := make(map[types.UID]time.Time, len(read.Status.Pending))
	for i := range read.Status.Pending {
		request := read.Status.Pending[i].Request
		if seen[request] = now; !a.seen[request].IsZero() {
			seen[request] = a.seen[request]
		}
	}
	a.seen = seen
}

// Notice keeps an account that was read from a cache, unless a newer one is known.
func (a *Account) Notice(read *quotav1alpha1.FleetAllowance) { a.remember(read) }

func (a *Account) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known = nil
}

// Known returns the newest account that this replica has written or read, or nil. It must not be modified.
func (a *Account) Known() *quotav1alpha1.FleetAllowance {
	known, _ := a.recall()
	return known
}

// Away returns an error while the hub does not answer.
func (a *Account) Away() *AwayError {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.away == nil {
		return nil
	}
	return &AwayError{Since: a.since, Err: a.away}
}

// heard records the result of a call to the hub, and returns an AwayError for an error of it.
func (a *Account) heard(err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case err == nil || apierrors.IsConflict(err):
		a.away, a.contact = nil, a.Now()
		return err
	case a.away == nil:
		a.since = a.contact
		if a.since.IsZero() {
			a.since = a.Now()
		}
	}
	a.away = err
	return &AwayError{Since: a.since, Err: err}
}

// Name returns the name of the quota.
func (a *Account) Name() string { return a.name }
