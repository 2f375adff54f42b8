package ledger

import (
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	quotav1alpha1 "github.com/postern-dev/postern/pkg/apis/quota/v1alpha1"
)

// offer is the allowance of the own cluster in the hub.
type offer struct {
	quota     types.UID
	sequence  int64
	allowance corev1.ResourceList
}

func (a *Account) recall() (*quotav1alpha1.FleetAllowance, *offer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.known, a.offered
}

// remember stores an account, unless a newer one is stored.
func (a *Account) remember(read *quotav1alpha1.FleetAllowance) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known != nil && a.known.UID == read.UID && compare(read.ResourceVersion, a.known.ResourceVersion) < 0 {
		return
	}
	a.known = read
	due := a.Now().Add(a.PendingTimeout)
	seen := make(map[types.UID]sighting, len(read.Status.Pending))
	for i := range read.Status.Pending {
		request := read.Status.Pending[i].Request
		s, ok := a.seen[request]
		if !ok {
			s.due = due
		}
		seen[request] = s
	}
	a.seen = seen
}

// Notice stores an account that was read from a cache, unless a newer one is stored.
func (a *Account) Notice(read *quotav1alpha1.FleetAllowance) { a.remember(read) }

func (a *Account) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known = nil
}

// Known returns the newest account that this replica has written or read, or nil. The caller must not modify it.
func (a *Account) Known() *quotav1alpha1.FleetAllowance {
	known, _ := a.recall()
	return known
}

// Away returns an error if the last call to the hub failed, or else nil.
func (a *Account) Away() *AwayError {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.away == nil {
		return nil
	}
	return &AwayError{Since: a.since, Err: a.away}
}

// heard records the result of a call to the hub. It returns an AwayError that wraps an error of the call.
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
