package census

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// maxOwners bounds a chain of owners. A chain has at most four objects in practice, such as Pod, Job, CronJob and a custom
// resource. Objects that own each other in a circle have no end of the chain, and each of them counts on its own.
const maxOwners = 8

// tally adds up what entries use. An owner uses what it declares, or what its dependents use if that is more: the pods of
// a workload that was made smaller go on until they are deleted, and those of a paused Deployment, or of a ReplicaSet with
// a new template, until somebody deletes them.
type tally struct {
	limited []corev1.ResourceName
	total   corev1.ResourceList
	// levels are the entries whose owner covers them, by the number of their owners.
	levels [maxOwners][]covered
	// below is what the dependents of an owner use.
	below map[types.UID]corev1.ResourceList
}

// covered is an entry and its owner.
type covered struct{ entry, owner *entry }

func newTally(limits corev1.ResourceList) *tally {
	t := &tally{total: corev1.ResourceList{}, below: map[types.UID]corev1.ResourceList{}}
	for name := range limits {
		t.limited = append(t.limited, name)
	}
	return t
}

// sum returns the total. ownerOf returns the entry that covers another one, or nil.
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

// addTo adds what an entry and its dependents use. Objects are counted only for a root: an owner declares how many pods it
// has, and not how many objects its controllers keep, such as the old ReplicaSets of a Deployment.
func (t *tally) addTo(sum corev1.ResourceList, e *entry, objects bool) {
	below := t.below[e.UID]
	for _, name := range t.limited {
		isCount := strings.HasPrefix(string(name), "count/")
		if isCount && !objects {
			continue
		}
		use := e.usage[name]
		if dependents, ok := below[name]; ok && !isCount {
			rest := dependents.DeepCopy()
			rest.Sub(e.spare[name])
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
