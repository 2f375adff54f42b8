package ledger

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	quotav1alpha1 "github.com/postern-dev/postern/pkg/apis/quota/v1alpha1"
)

// lookAgain is the time until an entry is looked up again, because the lookup failed, or because the object was stored and the
// caches do not show it yet.
const lookAgain = 10 * time.Second

// sighting is what a replica knows of an entry.
type sighting struct {
	// due is when the entry is looked up next, and at first when its request can no longer be stored.
	due time.Time
	// dead is true if what the request should store is not there, and cannot be stored any more.
	dead bool
}

// Overdue returns at most n entries for LookUp, the longest overdue first.
func (a *Account) Overdue(n int) []quotav1alpha1.Pending {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known == nil {
		return nil
	}
	now := a.Now()
	var out []quotav1alpha1.Pending
	for _, p := range a.known.Status.Pending {
		if s := a.seen[p.Request]; !s.dead && !now.Before(s.due) {
			out = append(out, p)
		}
	}
	slices.SortStableFunc(out, func(x, y quotav1alpha1.Pending) int { return a.seen[x.Request].due.Compare(a.seen[y.Request].due) })
	return out[:min(n, len(out))]
}

// LookUp asks the API server whether the request of an overdue entry was stored. If it was not, the next Recount removes the entry.
// Users choose how many requests store nothing, so no decision waits for a lookup.
func (a *Account) LookUp(ctx context.Context, p *quotav1alpha1.Pending) error {
	uid, version, err := a.workloads.Stored(ctx, p)
	a.mu.Lock()
	defer a.mu.Unlock()
	s, ok := a.seen[p.Request]
	if !ok {
		return nil
	}
	s.dead = err == nil && (uid == "" || uid != p.UID || version == p.From)
	s.due = a.Now().Add(lookAgain)
	a.seen[p.Request] = s
	if err != nil {
		return fmt.Errorf("looking for the object of an old request: %w", err)
	}
	return nil
}

// dead returns the requests that were not stored and cannot be stored any more.
func (a *Account) dead() map[types.UID]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[types.UID]bool{}
	for request, s := range a.seen {
		if s.dead {
			out[request] = true
		}
	}
	return out
}
