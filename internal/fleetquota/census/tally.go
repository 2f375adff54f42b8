package census

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// maxOwners is the longest chain of owners that is followed. In practice a chain has at most four objects, such as Pod,
// Job, CronJob and a custom resource. Objects that own each other in a circle are counted separately.
const maxOwners = 8

// tally computes the total usage of entries. The usage of an owner is the larger of its declared usage and the usage of
// its dependents: pods of a workload that was scaled down run until they are deleted, and pods of a paused Deployment,
// or of a ReplicaSet with a new template, run until a user deletes them.
type tally struct {
	limited []corev1.ResourceName
	total   corev1.ResourceList
	// levels holds the covered entries, by their number of owners.
	levels [maxOwners][]covered
	// below is the usage of the dependents of an owner.
	below map[types.UID]corev1.ResourceList
}

// covered is an entry with the owner whose usage includes it.
type covered struct{ entry, owner *entry }

func newTally(limits corev1.ResourceList) *tally {
	t := &tally{total: corev1.ResourceList{}, below: map[types.UID]corev1.ResourceList{}}
	for name := range limits {
		t.limited = append(t.limited, name)
	}
	return t
}

// sum returns the total usage. ownerOf returns the entry that covers an entry, or nil.
func (t *tally) sum(entries []*entry, ownerOf func(*entry) *entry) corev1.ResourceList {
	var roots []*entry
	for _, e := range entries {
		owner := ownerOf(e)
		owners := 0
		for at := owner; at != nil && owners < maxOwners; at = ownerOf(at) {
			owners++
		}
		if owners == 0 || owners == maxOwners {
			roots = append(roots, e)
			continue
		}
		t.levels[owners] = append(t.levels[owners], covered{e, owner})
	}
	for i := maxOwners - 1; i > 0; i-- {
		for _, c := range t.levels[i] {
			if !c.owner.fixed {
				t.addTo(t.under(c.owner), c.entry, false)
			}
		}
	}
	for _, e := range roots {
		t.addTo(t.total, e, true)
	}
	return t.total
}

func (t *tally) under(owner *entry) corev1.ResourceList {
	l, ok := t.below[owner.UID]
	if !ok {
		l = corev1.ResourceList{}
		t.below[owner.UID] = l
	}
	return l
}

// addTo adds the usage of an entry and its dependents. It counts objects only for a root: an owner declares its number
// of pods, but not the number of objects that its controllers create, such as the old ReplicaSets of a Deployment.
func (t *tally) addTo(sum corev1.ResourceList, e *entry, objects bool) {
	below := t.below[e.UID]
	for _, name := range t.limited {
		isCount := strings.HasPrefix(string(name), "count/")
		if isCount && !objects {
			continue
		}
		use, spare, _ := e.of(name)
		if dependents, ok := below[name]; ok && !isCount {
			rest := dependents.DeepCopy()
			rest.Sub(spare)
			if rest.Cmp(use) > 0 {
				use = rest
			}
		}
		if use.Sign() > 0 {
			had := sum[name]
			had.Add(use)
			sum[name] = had
		}
	}
}
