package patch

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestDiffOfKeyedLists(t *testing.T) {
	raw := `{"metadata":{"ownerReferences":[{"uid":"1","name":"a"},{"uid":"2","name":"a"}]},
		"spec":{"containers":[{"name":"a","new":1,"env":[{"name":"X","value":"1"},{"name":"Y","value":"2"}]},{"name":"b","new":2},{"name":"c","new":3}],
		"volumes":[{"name":"v","emptyDir":{}}]}}`
	sidecar := corev1.Container{Name: "s"}
	runPatchCases(t, coreKind("Pod"), []patchCase[*corev1.Pod]{
		{"one field of one item", raw, func(p *corev1.Pod) { p.Spec.Containers[1].Image = "i" }, []string{`add /spec/containers/1/image "i"`}},
		{
			"an item in front", raw, func(p *corev1.Pod) { p.Spec.Containers = slices.Insert(p.Spec.Containers, 0, sidecar) },
			[]string{`replace /spec/containers [{"name":"s","resources":{}},{"name":"a","new":1,"env":[{"name":"X","value":"1"},{"name":"Y","value":"2"}]},{"name":"b","new":2},{"name":"c","new":3}]`},
		},
		{
			"an item in the middle", raw, func(p *corev1.Pod) { p.Spec.Containers = slices.Insert(p.Spec.Containers, 1, sidecar) },
			[]string{`replace /spec/containers [{"name":"a","new":1,"env":[{"name":"X","value":"1"},{"name":"Y","value":"2"}]},{"name":"s","resources":{}},{"name":"b","new":2},{"name":"c","new":3}]`},
		},
		{
			"an item at the end", raw, func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, sidecar) },
			[]string{`add /spec/containers/3 {"name":"s","resources":{}}`},
		},
		{"two at the end, in order", raw, func(p *corev1.Pod) {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "w"}, corev1.Volume{Name: "x"})
		}, []string{`add /spec/volumes/1 {"name":"x"}`, `add /spec/volumes/1 {"name":"w"}`}},
		{"without the first", raw, func(p *corev1.Pod) { p.Spec.Containers = p.Spec.Containers[1:] }, []string{`replace /spec/containers [{"name":"b","new":2},{"name":"c","new":3}]`}},
		{"without the last", raw, func(p *corev1.Pod) { p.Spec.Containers = p.Spec.Containers[:2] }, []string{`replace /spec/containers [{"name":"a","new":1,"env":[{"name":"X","value":"1"},{"name":"Y","value":"2"}]},{"name":"b","new":2}]`}},
		{"removed and changed", raw, func(p *corev1.Pod) {
			p.Spec.Containers = p.Spec.Containers[1:]
			p.Spec.Containers[1].Image = "i"
		}, []string{
			`replace /spec/containers [{"name":"b","new":2},{"name":"c","new":3}]`,
			`add /spec/containers/1/image "i"`,
		}},
		{"an item of an item", raw, func(p *corev1.Pod) { p.Spec.Containers[0].Env[1].Value = "3" }, []string{`replace /spec/containers/0/env/1/value "3"`}},
		{"env in front", raw, func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = slices.Insert(p.Spec.Containers[0].Env, 0, corev1.EnvVar{Name: "W"})
		}, []string{`replace /spec/containers/0/env [{"name":"W"},{"name":"X","value":"1"},{"name":"Y","value":"2"}]`}},
		{"the first one last, as it was", raw, func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers[1:], p.Spec.Containers[0])
		}, []string{`replace /spec/containers [{"name":"b","new":2},{"name":"c","new":3},{"name":"a","new":1,"env":[{"name":"X","value":"1"},{"name":"Y","value":"2"}]}]`}},
		{"the last one first, and changed", raw, func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers[2:], p.Spec.Containers[:2]...)
			p.Spec.Containers[0].Image = "i"
		}, []string{
			`replace /spec/containers [{"name":"c","new":3},{"name":"a","new":1,"env":[{"name":"X","value":"1"},{"name":"Y","value":"2"}]},{"name":"b","new":2}]`,
			`add /spec/containers/0/image "i"`,
		}},
		{
			"another key is another item", raw, func(p *corev1.Pod) { p.Spec.Containers[1].Name = "z" },
			[]string{`replace /spec/containers [{"name":"a","new":1,"env":[{"name":"X","value":"1"},{"name":"Y","value":"2"}]},{"name":"z","resources":{}},{"name":"c","new":3}]`},
		},
		{"owners go by uid", raw, func(p *corev1.Pod) { p.OwnerReferences = p.OwnerReferences[1:] }, []string{`replace /metadata/ownerReferences [{"uid":"2","name":"a"}]`}},
		{
			"an owner's field", raw, func(p *corev1.Pod) { p.OwnerReferences[1].Controller = new(false) },
			[]string{`add /metadata/ownerReferences/1/controller false`},
		},
		{"all gone", raw, func(p *corev1.Pod) { p.Spec.Volumes = nil }, []string{`remove /spec/volumes`}},
		{"all gone, but the field must be there", raw, func(p *corev1.Pod) { p.Spec.Containers = nil }, []string{`replace /spec/containers null`}},
		{
			"the list is null", `{"spec":{"containers":null}}`, func(p *corev1.Pod) { p.Spec.Containers = []corev1.Container{sidecar} },
			[]string{`add /spec/containers [{"name":"s","resources":{}}]`},
		},
		{
			"the list is absent", `{"spec":{}}`, func(p *corev1.Pod) { p.Spec.Containers = []corev1.Container{sidecar} },
			[]string{`add /spec/containers [{"name":"s","resources":{}}]`},
		},
		{
			"the list is empty", `{"spec":{"containers":[]}}`, func(p *corev1.Pod) { p.Spec.Containers = []corev1.Container{sidecar} },
			[]string{`add /spec/containers [{"name":"s","resources":{}}]`},
		},
		{
			"an item is null", `{"spec":{"containers":[null,{"name":"b"}]}}`, func(p *corev1.Pod) { p.Spec.Containers[0].Name = "a" },
			[]string{`replace /spec/containers [{"name":"a","resources":{}},{"name":"b"}]`},
		},
		{
			"a null item's field", `{"spec":{"containers":[null]}}`, func(p *corev1.Pod) { p.Spec.Containers[0].Image = "i" },
			[]string{`replace /spec/containers/0 {"name":"","image":"i","resources":{}}`},
		},
	})
}

// TestDiffOfSharedKeys covers lists in which several items have the same merge key. An unknown
// field of one item must not move to another item.
func TestDiffOfSharedKeys(t *testing.T) {
	raw := `{"spec":{"ports":[{"port":53,"protocol":"TCP","new":"t"},{"port":53,"protocol":"UDP","new":"u"}]}}`
	runPatchCases(t, coreKind("Service"), []patchCase[*corev1.Service]{
		{"remove the first", raw, func(s *corev1.Service) { s.Spec.Ports = s.Spec.Ports[1:] }, []string{`replace /spec/ports [{"port":53,"protocol":"UDP","new":"u"}]`}},
		{"change the second", raw, func(s *corev1.Service) { s.Spec.Ports[1].Name = "n" }, []string{`add /spec/ports/1/name "n"`}},
		{
			"swap", raw, func(s *corev1.Service) { slices.Reverse(s.Spec.Ports) },
			[]string{`replace /spec/ports [{"port":53,"protocol":"UDP","new":"u"},{"port":53,"protocol":"TCP","new":"t"}]`},
		},
	})
}

func TestDiffOfKeylessLists(t *testing.T) {
	raw := `{"metadata":{"finalizers":["a","b","c"]},"spec":{"containers":[{"name":"c","args":["1","2","3"]}],
		"tolerations":[{"key":"x","new":1},{"key":"y","new":2}]}}`
	many := `{"spec":{"tolerations":[{"key":"x","new":1},{"key":"x","new":2},{"key":"k"},{"key":"l"},{"key":"m"}]}}`
	noExecute := corev1.Toleration{Key: "z", Effect: corev1.TaintEffectNoExecute}
	runPatchCases(t, coreKind("Pod"), []patchCase[*corev1.Pod]{
		{
			"append", raw, func(p *corev1.Pod) { p.Spec.Tolerations = append(p.Spec.Tolerations, noExecute) },
			[]string{`add /spec/tolerations/2 {"key":"z","effect":"NoExecute"}`},
		},
		{"change in place", raw, func(p *corev1.Pod) { p.Spec.Tolerations[1].Value = "v" }, []string{`add /spec/tolerations/1/value "v"`}},
		{
			"one becomes like its neighbour", raw, func(p *corev1.Pod) { p.Spec.Tolerations[0].Key = "y" },
			[]string{`replace /spec/tolerations [{"key":"y"},{"key":"y","new":2}]`},
		},
		{"change in place and append", raw, func(p *corev1.Pod) {
			p.Spec.Tolerations[0].Value = "v"
			p.Spec.Tolerations = append(p.Spec.Tolerations, noExecute)
		}, []string{`add /spec/tolerations/2 {"key":"z","effect":"NoExecute"}`, `add /spec/tolerations/0/value "v"`}},
		{"remove", raw, func(p *corev1.Pod) { p.Spec.Tolerations = p.Spec.Tolerations[1:] }, []string{`replace /spec/tolerations [{"key":"y","new":2}]`}},
		{
			"swap keeps what is not known", raw, func(p *corev1.Pod) { slices.Reverse(p.Spec.Tolerations) },
			[]string{`replace /spec/tolerations [{"key":"y","new":2},{"key":"x","new":1}]`},
		},
		{"a moved item and a new one", raw, func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{p.Spec.Tolerations[1], noExecute, p.Spec.Tolerations[0]}
		}, []string{`replace /spec/tolerations [{"key":"y","new":2},{"key":"z","effect":"NoExecute"},{"key":"x","new":1}]`}},
		{"a moved item in the place of one that is gone", `{"spec":{"tolerations":[{"key":"x","new":1},{"key":"y"},{"key":"w","new":3}]}}`, func(p *corev1.Pod) {
			was := p.Spec.Tolerations
			p.Spec.Tolerations = []corev1.Toleration{noExecute, was[1], was[0]}
		}, []string{`replace /spec/tolerations [{"key":"z","effect":"NoExecute"},{"key":"y"},{"key":"x","new":1}]`}},
		{"two equal ones moved", many, func(p *corev1.Pod) {
			was := p.Spec.Tolerations
			p.Spec.Tolerations = []corev1.Toleration{was[2], was[3], was[4], was[0], was[1]}
		}, []string{`replace /spec/tolerations [{"key":"k"},{"key":"l"},{"key":"m"},{"key":"x","new":1},{"key":"x","new":2}]`}},
		{"a finalizer in front", raw, func(p *corev1.Pod) { p.Finalizers = slices.Insert(p.Finalizers, 0, "z") }, []string{`replace /metadata/finalizers ["z","a","b","c"]`}},
		{"a finalizer away", raw, func(p *corev1.Pod) { p.Finalizers = []string{"a", "c"} }, []string{`replace /metadata/finalizers ["a","c"]`}},
		{"an argument", raw, func(p *corev1.Pod) { p.Spec.Containers[0].Args[1] = "x" }, []string{`replace /spec/containers/0/args ["1","x","3"]`}},
		{"the same argument twice", raw, func(p *corev1.Pod) { p.Spec.Containers[0].Args = []string{"1", "2", "2", "3"} }, []string{`replace /spec/containers/0/args ["1","2","2","3"]`}},
		{"no finalizers", raw, func(p *corev1.Pod) { p.Finalizers = nil }, []string{`remove /metadata/finalizers`}},
		{"the first finalizer", `{"metadata":{"name":"p"}}`, func(p *corev1.Pod) { p.Finalizers = []string{"f"} }, []string{`add /metadata/finalizers ["f"]`}},
	})
}

// TestDiffKeepsNumbersAsWritten moves an item with unknown fields, which must keep
// the spelling of their numbers.
func TestDiffKeepsNumbersAsWritten(t *testing.T) {
	raw := `{"spec":{"containers":[{"name":"a","huge":123456789012345678901234567890,"tiny":1.000},{"name":"b"}]}}`
	_, result := patched(t, coreKind("Pod"), raw, func(obj runtime.Object) { slices.Reverse(obj.(*corev1.Pod).Spec.Containers) })
	for _, want := range []string{`"huge":123456789012345678901234567890`, `"tiny":1.000`} {
		if !strings.Contains(result, want) {
			t.Errorf("Got %s, want it to contain %s", result, want)
		}
	}
}

func TestDiffOfManagedFields(t *testing.T) {
	raw := `{"metadata":{"managedFields":[{"manager":"m","operation":"Apply","apiVersion":"v1","time":"2026-01-02T03:04:05Z","fieldsType":"FieldsV1","fieldsV1":{"f:data":{}}}]}}`
	runPatchCases(t, coreKind("ConfigMap"), []patchCase[*corev1.ConfigMap]{
		{"are left alone", raw, func(c *corev1.ConfigMap) { c.Immutable = new(true) }, []string{`add /immutable true`}},
		{"can be changed", raw, func(c *corev1.ConfigMap) {
			c.ManagedFields[0].FieldsV1 = metav1.NewFieldsV1(`{"f:x":{}}`)
		}, []string{`replace /metadata/managedFields [{"manager":"m","operation":"Apply","apiVersion":"v1","time":"2026-01-02T03:04:05Z","fieldsType":"FieldsV1","fieldsV1":{"f:x":{}}}]`}},
	})
}

// TestCopyOfManagedFields changes the list, its entries and their text.
func TestCopyOfManagedFields(t *testing.T) {
	raw := []byte(`{"metadata":{"managedFields":[{"manager":"a","fieldsType":"FieldsV1","fieldsV1":{"f:data":{}}},{"manager":"b"}]}}`)
	for name, c := range map[string]struct {
		change func(*corev1.ConfigMap)
		want   []string
	}{
		"nothing":       {func(*corev1.ConfigMap) {}, nil},
		"an entry":      {func(c *corev1.ConfigMap) { c.ManagedFields[1].Manager = "c" }, []string{`replace /metadata/managedFields [{"manager":"a","fieldsType":"FieldsV1","fieldsV1":{"f:data":{}}},{"manager":"c"}]`}},
		"a text":        {func(c *corev1.ConfigMap) { c.ManagedFields[0].FieldsV1 = nil }, []string{`replace /metadata/managedFields [{"manager":"a","fieldsType":"FieldsV1"},{"manager":"b"}]`}},
		"a removal":     {func(c *corev1.ConfigMap) { c.ManagedFields = c.ManagedFields[:1] }, []string{`replace /metadata/managedFields [{"manager":"a","fieldsType":"FieldsV1","fieldsV1":{"f:data":{}}}]`}},
		"all":           {func(c *corev1.ConfigMap) { c.ManagedFields = nil }, []string{`remove /metadata/managedFields`}},
		"another field": {func(c *corev1.ConfigMap) { c.Name = "n" }, []string{`add /metadata/name "n"`}},
	} {
		after, _ := mustDecode(t, coreKind("ConfigMap"), string(raw)).(*corev1.ConfigMap)
		before := Copy(after)
		c.change(after)
		patch, err := Diff(t.Context(), before, after, raw)
		if err != nil {
			t.Fatal(err)
		}
		if got := brief(t, patch); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
