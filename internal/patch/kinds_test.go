package patch

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestDiffOfUnstructuredObjects(t *testing.T) {
	raw := `{"apiVersion":"example.com/v1","kind":"Thing","spec":{"n":3,"f":1.5,"big":9007199254740993,"list":[{"a":1},{"b":2}],"null":null,"empty":{}}}`
	set := func(value any, path ...string) func(*unstructured.Unstructured) {
		return func(u *unstructured.Unstructured) {
			if err := unstructured.SetNestedField(u.Object, value, path...); err != nil {
				t.Fatal(err)
			}
		}
	}
	runPatchCases(t, schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"}, []patchCase[*unstructured.Unstructured]{
		{"a number", raw, set(int64(4), "spec", "n"), []string{`replace /spec/n 4`}},
		{"a number to a string", raw, set("4", "spec", "n"), []string{`replace /spec/n "4"`}},
		{"null to a value", raw, set(true, "spec", "null"), []string{`add /spec/null true`}},
		{"a value to null", raw, set(nil, "spec", "n"), []string{`replace /spec/n null`}},
		{"a new null", raw, set(nil, "spec", "new"), []string{`add /spec/new null`}},
		{"into the empty", raw, set("v", "spec", "empty", "k"), []string{`add /spec/empty/k "v"`}},
		{"a new map", raw, set(map[string]any{}, "status"), []string{`add /status {}`}},
		{"a map to a list", raw, set([]any{}, "spec", "empty"), []string{`replace /spec/empty []`}},
		{
			"items", raw, set([]any{map[string]any{"b": int64(2)}, map[string]any{"a": int64(1)}}, "spec", "list"),
			[]string{`replace /spec/list [{"b":2},{"a":1}]`},
		},
		{
			"an item in place", raw, set([]any{map[string]any{"a": int64(1)}, map[string]any{"b": int64(3)}}, "spec", "list"),
			[]string{`replace /spec/list [{"a":1},{"b":3}]`},
		},
		{"a finalizer", raw, func(u *unstructured.Unstructured) { u.SetFinalizers([]string{"f"}) }, []string{`add /metadata {"finalizers":["f"]}`}},
		{"nothing", raw, func(*unstructured.Unstructured) {}, nil},
	})
}

func TestDiffRefusesAnotherObject(t *testing.T) {
	for name, after := range map[string]runtime.Object{"none": nil, "another type": &corev1.Service{}, "unstructured": &unstructured.Unstructured{Object: map[string]any{}}} {
		if patch, err := Diff(t.Context(), &corev1.Pod{}, after, []byte(`{}`)); err == nil {
			t.Errorf("%s: got patch %s, want an error", name, patch)
		}
	}
	if patch, err := Diff(t.Context(), nil, &corev1.Pod{}, nil); err == nil {
		t.Errorf("From nothing: got patch %s, want an error", patch)
	}
	if patch, err := Diff(t.Context(), nil, nil, nil); patch != nil || err != nil {
		t.Errorf("From nothing to nothing: got patch %s and error %v, want neither", patch, err)
	}
}
