package podtolerationrestriction

import (
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/postern-dev/postern/internal/kinds/tolerations"
	"github.com/postern-dev/postern/internal/proportion"
	"github.com/postern-dev/postern/internal/seed"
)

// TestWhitelistIsThatOfUpstream compares the index with a search in the whole list.
func TestWhitelistIsThatOfUpstream(t *testing.T) {
	chance := seed.Chance(t)
	list := func(most int) []corev1.Toleration {
		out := make([]corev1.Toleration, chance.IntN(most))
		for i := range out {
			out[i] = corev1.Toleration{
				Key:      []string{"", "a", "b"}[chance.IntN(3)],
				Operator: []corev1.TolerationOperator{"", corev1.TolerationOpEqual, corev1.TolerationOpExists, corev1.TolerationOpLt}[chance.IntN(4)],
				Value:    []string{"", "v"}[chance.IntN(2)],
				Effect:   []corev1.TaintEffect{"", corev1.TaintEffectNoExecute, corev1.TaintEffectNoSchedule}[chance.IntN(3)],
			}
			if seconds := chance.Int64N(4); seconds > 0 {
				out[i].TolerationSeconds = new(seconds)
			}
		}
		return out
	}
	for range 20_000 {
		allowed := list(8)
		for _, toleration := range list(8) {
			want := slices.ContainsFunc(allowed, func(w corev1.Toleration) bool { return tolerations.Covers(w, toleration) })
			if got := index(allowed).covers(&toleration); got != want {
				t.Fatalf("%v covers %v: got %t, want %t", allowed, toleration, got, want)
			}
		}
	}
}

// TestManyTolerations requires that the work does not grow with the product of the lengths of the two lists.
func TestManyTolerations(t *testing.T) {
	search := func(n int) func() {
		list := make([]corev1.Toleration, n)
		for i := range list {
			list[i] = corev1.Toleration{Key: strconv.Itoa(i), Operator: corev1.TolerationOpExists}
		}
		return func() {
			for allowed, i := index(list), 0; i < n; i++ {
				if !allowed.covers(&list[i]) {
					t.Fatalf("%v is not allowed", list[i])
				}
			}
		}
	}
	proportion.Check(t, "tolerations", 4, search(8_000), 16, search(500))
}
