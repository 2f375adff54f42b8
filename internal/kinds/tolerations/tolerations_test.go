package tolerations_test

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/postern-dev/postern/internal/kinds/tolerations"
	"github.com/postern-dev/postern/internal/proportion"
	"github.com/postern-dev/postern/internal/seed"
)

// reference merges as upstream does, by comparing each toleration with all others.
func reference(first, second []corev1.Toleration) []corev1.Toleration {
	all := slices.Concat(first, second)
	var merged []corev1.Toleration
	for i, t := range all {
		covers := func(o corev1.Toleration) bool { return tolerations.Covers(o, t) }
		later := slices.ContainsFunc(all[i+1:], func(o corev1.Toleration) bool { return !reflect.DeepEqual(o, t) && covers(o) })
		if !later && !slices.ContainsFunc(merged, covers) {
			merged = append(merged, t)
		}
	}
	return merged
}

// some returns up to seven random tolerations, of which many cover others.
func some(chance *rand.Rand) (out []corev1.Toleration) {
	for range chance.IntN(8) {
		toleration := corev1.Toleration{
			Key:      []string{"", "a", "b"}[chance.IntN(3)],
			Operator: []corev1.TolerationOperator{"", corev1.TolerationOpEqual, corev1.TolerationOpExists, corev1.TolerationOpLt}[chance.IntN(4)],
			Value:    []string{"", "v"}[chance.IntN(2)],
			Effect:   []corev1.TaintEffect{"", corev1.TaintEffectNoExecute, corev1.TaintEffectNoSchedule}[chance.IntN(3)],
		}
		if seconds := chance.Int64N(4); seconds > 0 {
			toleration.TolerationSeconds = new(seconds - 2)
		}
		out = append(out, toleration)
	}
	return out
}

func TestMergeIsThatOfUpstream(t *testing.T) {
	chance := seed.Chance(t)
	shorter := 0
	for range 100_000 {
		first, second := some(chance), some(chance)
		got, want := tolerations.Merge(slices.Clone(first), slices.Clone(second)), reference(first, second)
		if len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
			t.Fatalf("Merging %v and %v: got\n%v, want\n%v", first, second, got, want)
		}
		if len(want) < len(first)+len(second) {
			shorter++
		}
	}
	if shorter < 10_000 {
		t.Errorf("Only %d lists had covered tolerations", shorter)
	}
}

// TestSet compares a set with a search in its whole list.
func TestSet(t *testing.T) {
	chance := seed.Chance(t)
	covered := 0
	for range 20_000 {
		list := some(chance)
		for _, toleration := range some(chance) {
			want := slices.ContainsFunc(list, func(wide corev1.Toleration) bool { return tolerations.Covers(wide, toleration) })
			if got := tolerations.SetOf(list).Covers(&toleration); got != want {
				t.Fatalf("%v covers %v: got %t, want %t", list, toleration, got, want)
			}
			if want {
				covered++
			}
		}
	}
	if covered < 10_000 {
		t.Errorf("Only %d tolerations were covered", covered)
	}
}

// TestWorkOfSets searches for as many tolerations as a set has. The work must not grow with the product.
func TestWorkOfSets(t *testing.T) {
	for name, of := range map[string]func(i int) corev1.Toleration{
		"a taint each": func(i int) corev1.Toleration {
			return corev1.Toleration{Key: strconv.Itoa(i), Operator: corev1.TolerationOpExists}
		},
		"one taint for some time each": func(i int) corev1.Toleration {
			return corev1.Toleration{Key: "a", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(i))}
		},
	} {
		search := func(n int) func() {
			list := make([]corev1.Toleration, n)
			for i := range list {
				list[i] = of(i)
			}
			return func() {
				for set, i := tolerations.SetOf(list), 0; i < n; i++ {
					another := list[i]
					another.Operator, another.Value = corev1.TolerationOpEqual, "v"
					if !set.Covers(&another) {
						t.Fatalf("%v is not covered", another)
					}
				}
			}
		}
		proportion.Check(t, name, 4, search(8_000), 16, search(500))
	}
}

// TestMergeOfManyEnds has lists of which each toleration would be compared with all others, which takes longer than any
// time-out.
func TestMergeOfManyEnds(t *testing.T) {
	const n = 200_000
	equal, values, seconds := make([]corev1.Toleration, n), make([]corev1.Toleration, n), make([]corev1.Toleration, n)
	for i := range n {
		equal[i] = corev1.Toleration{Operator: corev1.TolerationOpExists}
		values[i] = corev1.Toleration{Key: "a", Operator: corev1.TolerationOpEqual, Value: strconv.Itoa(i)}
		seconds[i] = corev1.Toleration{Key: "a", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(n - i))}
	}
	for _, tc := range []struct {
		list []corev1.Toleration
		want int
	}{{equal, 1}, {values, n}, {seconds, 1}} {
		if got := tolerations.Merge(tc.list, tc.list); len(got) != tc.want {
			t.Errorf("Got %d tolerations, want %d", len(got), tc.want)
		}
	}
}
