package patch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// longPod returns a pod with n items in each of three lists: the environment has
// a key, finalizers are strings, and tolerations have neither a key nor an
// identity.
func longPod(tb testing.TB, n int) string {
	tb.Helper()
	pod := corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
	for i := range n {
		pod.Finalizers = append(pod.Finalizers, fmt.Sprint("f", i))
		pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, corev1.EnvVar{Name: fmt.Sprint("E", i)})
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: "k", Value: fmt.Sprint(i)})
	}
	data, err := json.Marshal(pod)
	if err != nil {
		tb.Fatal(err)
	}
	return string(data)
}

// longEdits returns edits of a pod from longPod, and for each edit the largest
// number of operations that its patch may have.
func longEdits(n int) map[string]struct {
	mutate func(*corev1.Pod)
	most   int
} {
	type edit = struct {
		mutate func(*corev1.Pod)
		most   int
	}
	return map[string]edit{
		"one more": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, corev1.EnvVar{Name: "Z"})
		}, 1},
		"one in between": {func(p *corev1.Pod) { p.Finalizers = slices.Insert(p.Finalizers, n/2, "z") }, 1},
		"two changes apart": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Env[1].Value, p.Spec.Containers[0].Env[n-2].Value = "x", "y"
		}, 2},
		"all the other way": {func(p *corev1.Pod) {
			slices.Reverse(p.Finalizers)
			slices.Reverse(p.Spec.Containers[0].Env)
			slices.Reverse(p.Spec.Tolerations)
		}, 3},
		"all others": {func(p *corev1.Pod) {
			p.Finalizers = slices.Repeat([]string{"x"}, n)
			p.Spec.Tolerations = slices.Repeat([]corev1.Toleration{{Key: "z"}}, n)
		}, 2},
		"all twice": {func(p *corev1.Pod) { p.Finalizers = slices.Repeat(p.Finalizers, 2) }, 1},
		"all changed inside": {func(p *corev1.Pod) {
			for i := range n {
				p.Spec.Containers[0].Env[i].Value, p.Spec.Tolerations[i].Operator = "x", corev1.TolerationOpExists
			}
		}, 2},
	}
}

// TestDiffOfLongLists is bounded by the time-out of the test: the cost must not
// grow with the square of the length. Nothing in the lists is unknown, so a list
// is replaced before its patch has thousands of operations.
func TestDiffOfLongLists(t *testing.T) {
	const n = 5000
	raw := longPod(t, n)
	for name, c := range longEdits(n) {
		t.Run(name, func(t *testing.T) {
			patch, _ := patched(t, coreKind("Pod"), raw, func(obj runtime.Object) { c.mutate(obj.(*corev1.Pod)) })
			if got := len(brief(t, patch)); got == 0 || got > c.most {
				t.Errorf("Got %d operations, want 1 to %d", got, c.most)
			}
		})
	}
}

// TestDiffOfLongEqualItems covers equal items, each of which could be the origin of any new
// item.
func TestDiffOfLongEqualItems(t *testing.T) {
	const n = 5000
	raw := `{"metadata":{"finalizers":["a"` + strings.Repeat(`,"x"`, n) + `,"b"]}}`
	patch, _ := patched(t, coreKind("Pod"), raw, func(obj runtime.Object) {
		p := obj.(*corev1.Pod)
		p.Finalizers = slices.Concat([]string{"c"}, p.Finalizers[2:], []string{"d"})
	})
	if got := len(brief(t, patch)); got == 0 || got > 10 {
		t.Errorf("Got %d operations, want few", got)
	}
}

// TestDiffKeepsUnknownFieldsOfLongLists checks that a patch has thousands of operations if a
// shorter patch would lose a field.
func TestDiffKeepsUnknownFieldsOfLongLists(t *testing.T) {
	const n = 3000
	raw := strings.Replace(longPod(t, n), `{"name":"E2000"}`, `{"name":"E2000","new":1}`, 1)
	raw = strings.Replace(raw, `{"key":"k","value":"2000"}`, `{"key":"k","value":"2000","new":2}`, 1)
	_, result := patched(t, coreKind("Pod"), raw, func(obj runtime.Object) {
		p := obj.(*corev1.Pod)
		slices.Reverse(p.Spec.Tolerations)
		for i := range n {
			p.Spec.Containers[0].Env[i].Value = "x"
			p.Spec.Tolerations[i].Operator = corev1.TolerationOpEqual
		}
	})
	for _, want := range []string{`{"name":"E2000","new":1,"value":"x"}`, `{"key":"k","new":2,"operator":"Equal","value":"2000"}`} {
		if !strings.Contains(result, want) {
			t.Errorf("The result lacks %s", want)
		}
	}
}

// steps is a context that counts the calls of Err. Its deadline passes after the
// number of calls that it starts with.
type steps struct{ left int }

func (s *steps) Err() error {
	if s.left--; s.left < 0 {
		return context.DeadlineExceeded
	}
	return nil
}

func (*steps) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }
func (*steps) Done() <-chan struct{}                   { return nil }
func (*steps) Value(any) any                           { return nil }

// TestDiffStopsAtTheDeadline lets the deadline pass at different times of a long
// comparison.
func TestDiffStopsAtTheDeadline(t *testing.T) {
	const n = 1000
	for name, edit := range longEdits(n) {
		for _, left := range []int{0, 1, n} {
			ctx := &steps{left}
			patch, err := diffLong(ctx, t, n, edit.mutate)
			if ctx.left < 0 && (patch != nil || !errors.Is(err, context.DeadlineExceeded)) {
				t.Errorf("%s, after %d steps: got a patch of %d bytes and error %v, want that of the deadline", name, left, len(patch), err)
			}
			if ctx.left < -1 {
				t.Errorf("%s, after %d steps: the comparison went on for %d steps", name, left, -ctx.left)
			}
			if left == 0 && ctx.left >= 0 {
				t.Errorf("%s: Diff did not look at the deadline", name)
			}
		}
	}
}

// TestDiffTakesStepsInProportionToTheLength compares lists with lists that are
// twice as long.
func TestDiffTakesStepsInProportionToTheLength(t *testing.T) {
	const n, most = 1000, 1 << 30
	twice := longEdits(2 * n)
	for name, edit := range longEdits(n) {
		short, long := &steps{most}, &steps{most}
		if _, err := diffLong(short, t, n, edit.mutate); err != nil {
			t.Fatal(err)
		}
		if _, err := diffLong(long, t, 2*n, twice[name].mutate); err != nil {
			t.Fatal(err)
		}
		if short, long := most-short.left, most-long.left; long > 2*short+10 || short > 20*n {
			t.Errorf("%s: got %d steps for %d items and %d for %d", name, short, n, long, 2*n)
		}
	}
}

// diffLong edits a pod with n items in each list, of which one has an unknown
// field.
func diffLong(ctx context.Context, tb testing.TB, n int, mutate func(*corev1.Pod)) ([]byte, error) {
	tb.Helper()
	raw := strings.Replace(longPod(tb, n), `{"key":"k","value":"0"}`, `{"key":"k","value":"0","new":1}`, 1)
	before, after := mustDecode(tb, coreKind("Pod"), raw), mustDecode(tb, coreKind("Pod"), raw)
	mutate(after.(*corev1.Pod))
	return Diff(ctx, before, after, []byte(raw))
}

// BenchmarkDiff compares pods with 100,000 items in each list.
func BenchmarkDiff(b *testing.B) {
	const n = 100_000
	raw := longPod(b, n)
	unknown := strings.Replace(raw, `{"key":"k","value":"0"}`, `{"key":"k","value":"0","new":1}`, 1)
	for name, c := range longEdits(n) {
		for suffix, raw := range map[string]string{"": raw, " with an unknown field": unknown} {
			b.Run(name+suffix, func(b *testing.B) {
				before, after := mustDecode(b, coreKind("Pod"), raw), mustDecode(b, coreKind("Pod"), raw)
				c.mutate(after.(*corev1.Pod))
				metav1.SetMetaDataLabel(&after.(*corev1.Pod).ObjectMeta, "a", "b")
				b.ResetTimer()
				for b.Loop() {
					if _, err := Diff(b.Context(), before, after, []byte(raw)); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
