package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/postern-dev/postern/internal/fleetquota/ledger"
	quotav1alpha1 "github.com/postern-dev/postern/pkg/apis/quota/v1alpha1"
)

var errUnreadable = errors.New("there is no memory for the answer")

// library is a cluster whose API server knows what became of requests. lookups are those that it was asked about.
type library struct {
	*site

	now     time.Time
	replica *ledger.Account
	stored  map[types.UID]string
	lookups []types.UID
}

// libraryOf returns a cluster with an entry for each of the objects. Requests cannot be stored any more after a minute.
func libraryOf(t *testing.T, uids ...types.UID) *library {
	t.Helper()
	l := &library{site: siteOf(hubOf(), "east"), now: time.Now(), stored: map[types.UID]string{}}
	options := l.options()
	options.PendingTimeout, options.Now = time.Minute, func() time.Time { return l.now }
	l.replica = ledger.NewAccount(quotaName, l, l.hub, l, options)
	for _, uid := range uids {
		l.charge(t, l.demand(uid, ""))
	}
	return l
}

// charge has a request admitted.
func (l *library) charge(t *testing.T, d *ledger.Demand) {
	t.Helper()
	if rest, _, err := l.replica.Decide(t.Context(), []*ledger.Demand{d}); err != nil || len(rest) > 0 {
		t.Fatalf("Got %d demands and the error %v", len(rest), err)
	}
}

func (l *library) demand(uid types.UID, from string) *ledger.Demand {
	return &ledger.Demand{Pending: quotav1alpha1.Pending{Request: uid + "@1", Resource: "jobs", UID: uid, From: from, Usage: cpus(1)}}
}

// Stored implements ledger.Workloads. An object with the version "unreadable" cannot be read.
func (l *library) Stored(_ context.Context, p *quotav1alpha1.Pending) (types.UID, string, error) {
	l.lookups = append(l.lookups, p.UID)
	switch version := l.stored[p.UID]; version {
	case "":
		return "", "", nil
	case "unreadable":
		return "", "", errUnreadable
	case "of another":
		return "other", "1", nil
	default:
		return p.UID, version, nil
	}
}

// round looks up at most n entries, and counts. It returns the objects that were looked up, and those whose entries are left.
func (l *library) round(t *testing.T, n int) (looked, left []types.UID) {
	t.Helper()
	l.lookups = nil
	for _, p := range l.replica.Overdue(n) {
		if err := l.replica.LookUp(t.Context(), &p); (err != nil) != (l.stored[p.UID] == "unreadable") {
			t.Errorf("Got the error %v for %s", err, p.UID)
		}
	}
	looked = l.lookups
	if err := l.replica.Recount(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(l.lookups) > len(looked) {
		t.Errorf("A count looked up %v", l.lookups[len(looked):])
	}
	for i := range l.account.Status.Pending {
		left = append(left, l.account.Status.Pending[i].UID)
	}
	return looked, left
}

// TestLookUp covers the requests whose outcome the caches do not show. They are charged until it is known that they were not
// stored.
func TestLookUp(t *testing.T) {
	l := libraryOf(t, "gone", "stored", "unreadable", "replaced")
	l.stored = map[types.UID]string{"stored": "7", "unreadable": "unreadable", "replaced": "of another"}
	for _, step := range []struct {
		after        time.Duration
		looked, left string
	}{
		{time.Minute - 1, "[]", "[gone stored unreadable replaced]"},
		{1, "[gone stored unreadable replaced]", "[stored unreadable]"},
		// The caches are late, or there is no memory. Both may last.
		{10*time.Second - 1, "[]", "[stored unreadable]"},
		{1, "[stored unreadable]", "[stored unreadable]"},
	} {
		l.now = l.now.Add(step.after)
		if looked, left := l.round(t, 10); fmt.Sprint(looked) != step.looked || fmt.Sprint(left) != step.left {
			t.Errorf("Looked up %v with %v left, want %s with %s", looked, left, step.looked, step.left)
		}
	}
	// One was deleted before the caches had it, and the other one can be read.
	l.stored = nil
	l.now = l.now.Add(10 * time.Second)
	if _, left := l.round(t, 10); len(left) > 0 {
		t.Errorf("Got the entries %v", left)
	}
}

// TestLookUpOnce covers an entry that is known to be dead, which is not looked up again before a count removes it, and an entry
// that another replica removed meanwhile: if its request is charged again, nothing is known of it.
func TestLookUpOnce(t *testing.T) {
	l := libraryOf(t, "gone")
	l.now = l.now.Add(time.Minute)
	for want := 1; want >= 0; want-- {
		overdue := l.replica.Overdue(10)
		if len(overdue) != want {
			t.Errorf("Got %d overdue entries, want %d", len(overdue), want)
		}
		for _, p := range overdue {
			if err := l.replica.LookUp(t.Context(), &p); err != nil {
				t.Error(err)
			}
		}
		l.now = l.now.Add(time.Hour)
	}
	again := l.demand("again", "")
	if err := l.replica.LookUp(t.Context(), &again.Pending); err != nil {
		t.Error(err)
	}
	l.charge(t, again)
	if _, left := l.round(t, 10); !slices.Equal(left, []types.UID{"again"}) {
		t.Errorf("Got the entries %v, want that of the new request", left)
	}
}

// TestLookUpOfAChange covers changes: an object that still has the version that they should replace was not changed.
func TestLookUpOfAChange(t *testing.T) {
	l := libraryOf(t)
	l.objects["unchanged"], l.objects["changed"] = ledger.Counted{ResourceVersion: "4"}, ledger.Counted{ResourceVersion: "4"}
	for _, uid := range []types.UID{"unchanged", "changed"} {
		l.charge(t, l.demand(uid, "4"))
	}
	l.stored = map[types.UID]string{"unchanged": "4", "changed": "5"}
	l.now = l.now.Add(time.Minute)
	if _, left := l.round(t, 10); !slices.Equal(left, []types.UID{"changed"}) {
		t.Errorf("Got the entries %v, want that of the object that was changed", left)
	}
}

// TestLookUpsAreBounded covers many requests. Entries that cannot be looked up do not keep the others waiting.
func TestLookUpsAreBounded(t *testing.T) {
	l := libraryOf(t, "a", "b", "c")
	l.stored = map[types.UID]string{"a": "unreadable", "b": "unreadable"}
	l.now = l.now.Add(time.Minute)
	for _, want := range []string{"[a b]", "[c]"} {
		if looked, _ := l.round(t, 2); fmt.Sprint(looked) != want {
			t.Errorf("Looked up %v, want %s", looked, want)
		}
	}
	l.stored["c"] = "unreadable"
	l.charge(t, l.demand("c", ""))
	l.now = l.now.Add(time.Hour)
	// Those that were looked up before have been overdue for longer.
	for _, want := range []string{"[a b]", "[c a]", "[b a]"} {
		l.now = l.now.Add(11 * time.Second)
		if looked, _ := l.round(t, 2); fmt.Sprint(looked) != want {
			t.Errorf("Looked up %v, want %s", looked, want)
		}
	}
}

// TestDecisionsDoNotLookUp has an old entry keep a request from the limit. Users choose how many such entries there are, so no
// request waits for lookups.
func TestDecisionsDoNotLookUp(t *testing.T) {
	l := libraryOf(t, "gone")
	l.now = l.now.Add(time.Hour)
	large := l.demand("large", "")
	large.Usage = l.hub.quota.Spec.Hard
	decide := func() error {
		_, _, err := l.replica.Decide(t.Context(), []*ledger.Demand{large})
		return err
	}
	if err := decide(); !ledger.IsShortOrAway(err) || len(l.lookups) > 0 {
		t.Errorf("Got the error %v, and %v were looked up", err, l.lookups)
	}
	if looked, _ := l.round(t, 10); len(looked) != 1 {
		t.Errorf("Looked up %v", looked)
	}
	if err := decide(); err != nil {
		t.Errorf("Got the error %v when the old entry is gone", err)
	}
}
