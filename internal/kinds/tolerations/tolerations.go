// Package tolerations merges and compares the tolerations of pods.
package tolerations

import (
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/postern-dev/postern/internal/footprint"
)

// Merge returns the tolerations of both lists without those that another toleration
// covers. Merge changes neither list. Users write long lists, so it takes a time that grows with their length, and not with
// its square as upstream.
//
// Upstream: pkg/util/tolerations.
func Merge(first, second []corev1.Toleration) []corev1.Toleration {
	all := slices.Concat(first, second)
	covered, later := make([]bool, len(all)), longest{}
	for i := range slices.Backward(all) {
		covered[i] = later.another(&all[i])
		later.add(&all[i])
	}
	var merged []corev1.Toleration
	before := SetOf(nil)
	for i := range all {
		if !covered[i] && !before.Covers(&all[i]) {
			merged = append(merged, all[i])
			before.add(&all[i])
		}
	}
	return merged
}

// Set finds a toleration that covers another one, in a time that does not grow with its size.
type Set struct {
	values  map[value]bool
	longest longest
}

// SetOf returns a set of the tolerations, which must not change any more.
func SetOf(list []corev1.Toleration) Set {
	s := Set{map[value]bool{}, longest{}}
	for i := range list {
		s.add(&list[i])
	}
	return s
}

func (s Set) add(t *corev1.Toleration) {
	s.values[valueOf(*t)] = true
	s.longest.add(t)
}

// Covers reports whether a toleration of the set covers t: see the func Covers.
func (s Set) Covers(t *corev1.Toleration) bool {
	return s.values[valueOf(*t)] || s.longest.another(t)
}

// Memory returns how many bytes of memory a list of n tolerations takes while it grows, without their text.
func Memory(n int) int64 {
	return footprint.WithSpare(footprint.OfList(reflect.TypeFor[corev1.Toleration](), n))
}

// SetMemory returns how many bytes of memory a set of n tolerations takes beside them.
func SetMemory(n int) int64 {
	return footprint.OfMap(reflect.TypeFor[map[value]bool](), n) + footprint.OfMap(reflect.TypeFor[longest](), n)
}

// MergeMemory returns how many bytes of memory a Merge of n tolerations takes.
func MergeMemory(n int) int64 {
	return SetMemory(n) + footprint.OfMap(reflect.TypeFor[longest](), n) + 2*Memory(n)
}

// value is a toleration that can be compared.
type value struct {
	toleration corev1.Toleration // without seconds
	limited    bool
	seconds    int64
}

func valueOf(t corev1.Toleration) value {
	v := value{toleration: t}
	v.toleration.TolerationSeconds = nil
	if t.TolerationSeconds != nil {
		v.limited, v.seconds = true, *t.TolerationSeconds
	}
	return v
}

// longest holds the two tolerations of each range of taints that tolerate them for the longest time. If one of the range
// covers a toleration and is not equal to it, one of the two does.
type longest map[taints][2]*corev1.Toleration

// taints are what a toleration tolerates for some time.
type taints struct {
	key    string
	effect corev1.TaintEffect
	// all is true for all values of the key. Otherwise value is the only one.
	all   bool
	value string
}

func (l longest) add(t *corev1.Toleration) {
	of := taints{key: t.Key, effect: t.Effect}
	switch t.Operator {
	case corev1.TolerationOpExists:
		of.all = true
	case corev1.TolerationOpEqual, "":
		of.value = t.Value
	default:
		return // it covers no other one
	}
	two := l[of]
	switch {
	case two[0] == nil || longer(t, two[0]):
		two = [2]*corev1.Toleration{t, two[0]}
	case !equal(*t, *two[0]) && (two[1] == nil || longer(t, two[1])):
		two[1] = t
	}
	l[of] = two
}

// longer reports whether a tolerates the same taints for a longer time than b.
func longer(a, b *corev1.Toleration) bool {
	if a.Effect != corev1.TaintEffectNoExecute || b.TolerationSeconds == nil {
		return false
	}
	return a.TolerationSeconds == nil || *a.TolerationSeconds > *b.TolerationSeconds
}

// another reports whether one of the tolerations covers t and is not equal to it.
func (l longest) another(t *corev1.Toleration) bool {
	in := func(of taints) bool {
		for _, o := range l[of] {
			if o != nil && !equal(*o, *t) && Covers(*o, *t) {
				return true
			}
		}
		return false
	}
	for _, effect := range []corev1.TaintEffect{"", t.Effect} {
		if in(taints{key: t.Key, effect: effect, all: true}) || in(taints{effect: effect, all: true}) || in(taints{key: t.Key, effect: effect, value: t.Value}) {
			return true
		}
	}
	return false
}

// equal reports whether two tolerations are the same. Unlike Semantic.DeepEqual of Kubernetes it uses no reflection.
func equal(a, b corev1.Toleration) bool {
	if !ptr.Equal(a.TolerationSeconds, b.TolerationSeconds) {
		return false
	}
	a.TolerationSeconds, b.TolerationSeconds = nil, nil
	return a == b
}

// Covers reports whether wide tolerates every taint that t tolerates.
func Covers(wide, t corev1.Toleration) bool {
	if equal(wide, t) {
		return true
	}
	anyKey := wide.Key == "" && wide.Operator == corev1.TolerationOpExists
	if (wide.Key != t.Key && !anyKey) || (wide.Effect != "" && wide.Effect != t.Effect) {
		return false
	}
	if limit := wide.TolerationSeconds; wide.Effect == corev1.TaintEffectNoExecute && limit != nil {
		if t.TolerationSeconds == nil || *t.TolerationSeconds > *limit {
			return false
		}
	}
	switch wide.Operator {
	case corev1.TolerationOpExists:
		return true
	case corev1.TolerationOpEqual, "":
		// Upstream: an empty operator in t means Equal, but Covers does not treat it
		// as Equal.
		return t.Operator == corev1.TolerationOpEqual && t.Value == wide.Value
	default:
		return false
	}
}
