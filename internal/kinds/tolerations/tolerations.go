// Package tolerations merges and compares the tolerations of pods.
package tolerations

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// Merge returns the tolerations of both lists without those that another toleration
// covers. Merge changes neither list.
//
// Upstream: pkg/util/tolerations.
func Merge(first, second []corev1.Toleration) []corev1.Toleration {
	all := slices.Concat(first, second)
	var merged []corev1.Toleration
	for i, t := range all {
		kept := slices.ContainsFunc(merged, func(o corev1.Toleration) bool { return Covers(o, t) })
		// Of two equal tolerations Merge keeps the first.
		later := slices.ContainsFunc(all[i+1:], func(o corev1.Toleration) bool {
			return !equal(t, o) && Covers(o, t)
		})
		if !kept && !later {
			merged = append(merged, t)
		}
	}
	return merged
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
