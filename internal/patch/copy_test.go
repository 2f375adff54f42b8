package patch

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/postern-dev/postern/internal/reuse"
)

// TestCopiesUsedAgain copies each random object into the memory of the copy of another one. A copy that shares memory with
// its original hides a change of a plugin.
func TestCopiesUsedAgain(t *testing.T) {
	again := 0
	forRandomObjects(t, func(c *chance, gvk schema.GroupVersionKind, _ string) {
		Recycle(Copy(c.fill(t, gvk)), nil)
		obj := c.fill(t, gvk)
		if poolOf(obj) != nil {
			again++
		}
		want := encoded(t, obj)
		got := Copy(obj)
		if changed := changeOf(reflect.ValueOf(got).Elem(), reflect.ValueOf(obj).Elem()); changed != nil || encoded(t, got) != want {
			t.Fatalf("Got the copy %s, want %s", encoded(t, got), want)
		}
		for _, write := range []func(any){c.scramble, reuse.Overwrite} {
			write(obj)
			if encoded(t, got) != want {
				t.Errorf("Got %s after a change of the original, want %s", encoded(t, got), want)
			}
		}
	})
	if again < 10 {
		t.Errorf("Only %d copies were used again", again)
	}
	if poolOf(&corev1.Pod{}) == nil {
		t.Error("Copies of pods are not used again")
	}
}

func encoded(t *testing.T, obj runtime.Object) string {
	t.Helper()
	data, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestCopyOfALargeQuantity covers a quantity that is changed in place, through a pointer that it has.
func TestCopyOfALargeQuantity(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Overhead: corev1.ResourceList{"cpu": resource.MustParse("1000000000000000000000001")}}}
	for range 2 {
		before := Copy(pod)
		cpu := pod.Spec.Overhead["cpu"]
		cpu.AsDec().Neg(cpu.AsDec())
		if apiequality.Semantic.DeepEqual(before, pod) {
			t.Error("The copy changed with the original")
		}
		Recycle(before, nil)
	}
}

// TestPatchesDoNotShareMemory keeps each patch while the next ones are made.
func TestPatchesDoNotShareMemory(t *testing.T) {
	var patches [][]byte
	var want []string
	for i := range 20 {
		before := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "old"}}
		after := &corev1.Pod{Spec: corev1.PodSpec{NodeName: strings.Repeat("n", 1+10*i)}}
		patch, err := Diff(t.Context(), before, after, []byte(`{"spec":{"nodeName":"old"}}`))
		if err != nil {
			t.Fatal(err)
		}
		patches = append(patches, patch)
		want = append(want, `[{"op":"replace","path":"/spec/nodeName","value":"`+after.Spec.NodeName+`"}]`)
	}
	for i, patch := range patches {
		if string(patch) != want[i] {
			t.Errorf("Got %s, want %s", patch, want[i])
		}
	}
}
