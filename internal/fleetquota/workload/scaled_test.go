package workload_test

import (
	"errors"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/postern-dev/postern/internal/fleetquota/workload"
)

func TestScaled(t *testing.T) {
	custom := workload.Kind{
		GroupVersionResource: schema.GroupVersionResource{Group: "batch.example.com", Version: "v1", Resource: "trainings"}, Kind: "Training", Scale: "spec.workers.count",
		Custom: &workload.Custom{},
	}
	for _, kind := range append(workload.New(workload.Settings{}, nil, nil).All(), custom) {
		if kind.Scale == "" {
			continue
		}
		object := func() map[string]any {
			return map[string]any{
				"metadata": map[string]any{"name": "a", "resourceVersion": "1"},
				"spec":     map[string]any{"replicas": int64(3), "workers": map[string]any{"count": int64(3)}},
			}
		}
		u := &unstructured.Unstructured{Object: object()}
		stored, err := kind.Typed(u)
		if err != nil {
			t.Fatalf("%s: %v", kind.Kind, err)
		}
		scaled, err := kind.Scaled(stored, 5, "2")
		if err != nil {
			t.Fatalf("%s: %v", kind.Kind, err)
		}
		if got := replicasOf(t, kind, scaled); got != 5 {
			t.Errorf("%s: got %d replicas, want 5", kind.Kind, got)
		}
		if m, err := meta.Accessor(scaled); err != nil || m.GetResourceVersion() != "2" || m.GetName() != "a" {
			t.Errorf("%s: got %+v and the error %v", kind.Kind, m, err)
		}
		if got := replicasOf(t, kind, stored); got != 3 || !reflect.DeepEqual(u.Object, object()) {
			t.Errorf("%s: the stored object was changed: %v, %d replicas", kind.Kind, u.Object, got)
		}
	}
	for name, content := range map[string]map[string]any{
		"a number": {"spec": int64(1)}, "a list": {"spec": map[string]any{"workers": []any{}}}, "no metadata": {"metadata": "x"},
	} {
		if _, err := custom.Scaled(&unstructured.Unstructured{Object: content}, 5, "2"); !errors.Is(err, workload.ErrUnreadable) {
			t.Errorf("%s: got the error %v, want %v", name, err, workload.ErrUnreadable)
		}
	}
	scaled, err := custom.Scaled(&unstructured.Unstructured{Object: map[string]any{}}, 5, "2")
	if err != nil || replicasOf(t, custom, scaled) != 5 {
		t.Errorf("An empty object: got %v and the error %v", scaled, err)
	}
}

// replicasOf returns the number at the path that the subresource scale sets.
func replicasOf(t *testing.T, kind workload.Kind, obj runtime.Object) int64 {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		t.Fatal(err)
	}
	path := []string{"spec", "replicas"}
	if kind.Custom != nil {
		path = []string{"spec", "workers", "count"}
	}
	n, _, err := unstructured.NestedInt64(content, path...)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
