package patch

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestDiffOfChangedItems covers lists without a unique key in which some items are changed and
// others are added or removed. An unknown field may be lost, but must never move to another
// item.
func TestDiffOfChangedItems(t *testing.T) {
	raw := `{"spec":{"tolerations":[{"key":"x","new":1},{"key":"y","new":2}]}}`
	alike := `{"spec":{"tolerations":[{"key":"x","operator":"Exists","effect":"NoSchedule","new":1},{"key":"y","operator":"Exists","effect":"NoSchedule","new":2}]}}`
	z := corev1.Toleration{Key: "z", Effect: corev1.TaintEffectNoExecute}
	runPatchCases(t, coreKind("Pod"), []patchCase[*corev1.Pod]{
		{"drop one, change the next, append one", raw, func(p *corev1.Pod) {
			y := p.Spec.Tolerations[1]
			y.Value = "v"
			p.Spec.Tolerations = []corev1.Toleration{y, z}
		}, []string{
			`replace /spec/tolerations [{"key":"y","new":2},{"key":"z","effect":"NoExecute"}]`,
			`add /spec/tolerations/0/value "v"`,
		}},
		{"the same, and all have the same operator and effect", alike, func(p *corev1.Pod) {
			y, z := p.Spec.Tolerations[1], p.Spec.Tolerations[0]
			y.Effect, z.Key = corev1.TaintEffectNoExecute, "z"
			p.Spec.Tolerations = []corev1.Toleration{y, z}
		}, []string{
			`replace /spec/tolerations [{"key":"y","operator":"Exists","effect":"NoSchedule","new":2},{"key":"z","operator":"Exists","effect":"NoSchedule"}]`,
			`replace /spec/tolerations/0/effect "NoExecute"`,
		}},
		{"another one with the same operator", `{"spec":{"tolerations":[{"key":"x","operator":"Exists","new":1}]}}`, func(p *corev1.Pod) {
			p.Spec.Tolerations[0].Key = "z"
		}, []string{`replace /spec/tolerations [{"key":"z","operator":"Exists"}]`}},
		{"move one and change it", raw, func(p *corev1.Pod) {
			slices.Reverse(p.Spec.Tolerations)
			p.Spec.Tolerations[1].Value = "v"
		}, []string{
			`replace /spec/tolerations [{"key":"y","new":2},{"key":"x","new":1}]`,
			`add /spec/tolerations/1/value "v"`,
		}},
		{"two could have become it", `{"spec":{"tolerations":[{"key":"x","new":1},{"key":"x","value":"1","new":2}]}}`, func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Key: "x", Value: "2"}}
		}, []string{`replace /spec/tolerations [{"key":"x","value":"2"}]`}},
		{"it could have become two", raw, func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Key: "x", Value: "1"}, {Key: "x", Value: "2"}}
		}, []string{`replace /spec/tolerations [{"key":"x","value":"1"},{"key":"x","value":"2"}]`}},
		{"two exchanged a value", `{"spec":{"tolerations":[{"key":"x","value":"1","new":1},{"key":"y","value":"2","new":2}]}}`, func(p *corev1.Pod) {
			p.Spec.Tolerations[0].Value, p.Spec.Tolerations[1].Value = "2", "1"
		}, []string{`replace /spec/tolerations [{"key":"x","value":"2"},{"key":"y","value":"1"}]`}},
		{"a field deep inside", `{"spec":{"volumes":[{"name":"v","projected":{"sources":[
			{"secret":{"name":"s"},"new":1},{"serviceAccountToken":{"path":"token","expirationSeconds":3607,"new":2},"new":3}]}}]}}`, func(p *corev1.Pod) {
			sources := &p.Spec.Volumes[0].Projected.Sources
			*sources = (*sources)[1:]
			*(*sources)[0].ServiceAccountToken.ExpirationSeconds = 600
		}, []string{
			`replace /spec/volumes/0/projected/sources [{"serviceAccountToken":{"path":"token","expirationSeconds":3607,"new":2},"new":3}]`,
			`replace /spec/volumes/0/projected/sources/0/serviceAccountToken/expirationSeconds 600`,
		}},
		{"a field that is not known is only in one", `{"spec":{"tolerations":[{"key":"x"},{"key":"y","new":2}]}}`, func(p *corev1.Pod) {
			p.Spec.Tolerations[0].Key, p.Spec.Tolerations[1].Key = "v", "w"
		}, []string{`replace /spec/tolerations [{"key":"v"},{"key":"w"}]`}},
	})
}

// TestDiffOfManyNamedItems moves 2,000 containers. Each keeps its unknown field.
func TestDiffOfManyNamedItems(t *testing.T) {
	const n = 2000
	var containers []map[string]any
	for i := range n {
		containers = append(containers, map[string]any{"name": fmt.Sprint("c", i), "new": fmt.Sprint("c", i)})
	}
	data, err := json.Marshal(map[string]any{"spec": map[string]any{"containers": containers}})
	if err != nil {
		t.Fatal(err)
	}
	_, result := patched(t, coreKind("Pod"), string(data), func(obj runtime.Object) {
		p := obj.(*corev1.Pod)
		slices.Reverse(p.Spec.Containers[1:])
		p.Spec.Containers[1].Image = "i"
	})
	var got struct {
		Spec struct{ Containers []struct{ Name, New string } }
	}
	if err := json.Unmarshal([]byte(result), &got); err != nil {
		t.Fatal(err)
	}
	for i, c := range got.Spec.Containers {
		if c.New != c.Name {
			t.Fatalf("Container %d, %s, has the field of %q", i, c.Name, c.New)
		}
	}
}
