package patch

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// patched mutates the object in raw, computes the patch, applies it to raw as the API server
// does, and returns the patch and the result. The test fails if the result differs from the
// mutated object.
func patched(tb testing.TB, gvk schema.GroupVersionKind, raw string, mutate func(runtime.Object)) (patch []byte, result string) {
	tb.Helper()
	before, after := mustDecode(tb, gvk, raw), mustDecode(tb, gvk, raw)
	mutate(after)
	patch, err := Diff(tb.Context(), before, after, []byte(raw))
	if err != nil {
		tb.Fatalf("Making the patch: %v\n%s", err, raw)
	}
	if !apiequality.Semantic.DeepEqual(before, mustDecode(tb, gvk, raw)) {
		tb.Fatalf("The object before was changed")
	}
	result = mustApply(tb, raw, patch)
	data, err := json.Marshal(after)
	if err != nil {
		tb.Fatalf("Encoding the mutated object: %v", err)
	}
	got, want := mustDecode(tb, gvk, result), mustDecode(tb, gvk, string(data))
	if !apiequality.Semantic.DeepEqual(got, want) {
		tb.Fatalf("The patched object is not the mutated one (-got +want):\n%s\nraw:   %s\npatch: %s", cmp.Diff(got, want), raw, patch)
	}
	return patch, result
}

func mustDecode(tb testing.TB, gvk schema.GroupVersionKind, raw string) runtime.Object {
	tb.Helper()
	obj, err := decode([]byte(raw), gvk)
	if err != nil {
		tb.Fatalf("Decoding: %v\n%s", err, raw)
	}
	return obj
}

// mustApply applies a patch. An empty patch must be nil.
func mustApply(tb testing.TB, raw string, patch []byte) string {
	tb.Helper()
	if patch == nil {
		return raw
	}
	if s := strings.TrimSpace(string(patch)); s == "" || s == "null" || s == "[]" {
		tb.Fatalf("The empty patch is %q, want nil", patch)
	}
	p, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		tb.Fatalf("Decoding the patch: %v\n%s", err, patch)
	}
	out, err := p.Apply([]byte(raw))
	if err != nil {
		tb.Fatalf("Applying the patch: %v\nraw:   %s\npatch: %s", err, raw, patch)
	}
	return string(out)
}

// brief writes each operation of a patch as one line.
func brief(t *testing.T, patch []byte) []string {
	t.Helper()
	var ops []struct {
		Op, Path string
		Value    json.RawMessage
	}
	if patch == nil {
		return nil
	}
	if err := json.Unmarshal(patch, &ops); err != nil {
		t.Fatalf("Decoding the patch: %v\n%s", err, patch)
	}
	var lines []string
	for _, op := range ops {
		lines = append(lines, strings.TrimSpace(op.Op+" "+op.Path+" "+string(op.Value)))
	}
	return lines
}

// patchCase is an edit and the operations that its patch must have.
type patchCase[T runtime.Object] struct {
	name, raw string
	mutate    func(T)
	want      []string
}

func runPatchCases[T runtime.Object](t *testing.T, gvk schema.GroupVersionKind, cases []patchCase[T]) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			patch, _ := patched(t, gvk, c.raw, func(obj runtime.Object) { c.mutate(obj.(T)) })
			if got := brief(t, patch); !slices.Equal(got, c.want) {
				t.Errorf("Got operations\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(c.want, "\n  "))
			}
		})
	}
}

func coreKind(kind string) schema.GroupVersionKind { return corev1.SchemeGroupVersion.WithKind(kind) }

func TestDiffOfMapKeys(t *testing.T) {
	set := func(key, value string) func(*corev1.ConfigMap) {
		return func(c *corev1.ConfigMap) { metav1.SetMetaDataLabel(&c.ObjectMeta, key, value) }
	}
	raw := `{"metadata":{"labels":{"a/b":"1","c~d":"2","~1":"3","":"4","ü/☃":"5","plain":"6"}}}`
	drop := func(key string) func(*corev1.ConfigMap) {
		return func(c *corev1.ConfigMap) { delete(c.Labels, key) }
	}
	runPatchCases(t, coreKind("ConfigMap"), []patchCase[*corev1.ConfigMap]{
		{"change a slash", raw, set("a/b", "x"), []string{`replace /metadata/labels/a~1b "x"`}},
		{"change a tilde", raw, set("c~d", "x"), []string{`replace /metadata/labels/c~0d "x"`}},
		{"change what looks escaped", raw, set("~1", "x"), []string{`replace /metadata/labels/~01 "x"`}},
		{"change the empty key", raw, set("", "x"), []string{`replace /metadata/labels/ "x"`}},
		{"change unicode", raw, set("ü/☃", "x"), []string{`replace /metadata/labels/ü~1☃ "x"`}},
		{"add a slash and a tilde", raw, set("~/~/", "x"), []string{`add /metadata/labels/~0~1~0~1 "x"`}},
		{"add a number", raw, set("0", "x"), []string{`add /metadata/labels/0 "x"`}},
		{"add a dash", raw, set("-", "x"), []string{`add /metadata/labels/- "x"`}},
		{"add to the empty value", raw, set("e", ""), []string{`add /metadata/labels/e ""`}},
		{"remove a slash", raw, drop("a/b"), []string{`remove /metadata/labels/a~1b`}},
		{"remove the empty key", raw, drop(""), []string{`remove /metadata/labels/`}},
		{"remove the last", `{"metadata":{"labels":{"a":"1"}}}`, drop("a"), []string{`remove /metadata/labels`}},
		{"nothing", raw, func(*corev1.ConfigMap) {}, nil},
		{"the same value", raw, set("plain", "6"), nil},
		{"labels are absent", `{"metadata":{"name":"x"}}`, set("a", "1"), []string{`add /metadata/labels {"a":"1"}`}},
		{"labels are null", `{"metadata":{"labels":null}}`, set("a", "1"), []string{`add /metadata/labels {"a":"1"}`}},
		{"labels are empty", `{"metadata":{"labels":{}}}`, set("a", "1"), []string{`add /metadata/labels {"a":"1"}`}},
		{"metadata is absent", `{"data":{}}`, set("a", "1"), []string{`add /metadata {"labels":{"a":"1"}}`}},
		{"metadata is null", `{"metadata":null}`, set("a", "1"), []string{`add /metadata {"labels":{"a":"1"}}`}},
		{"empty instead of none", `{}`, func(c *corev1.ConfigMap) { c.Data = map[string]string{} }, nil},
		{"none instead of empty", `{"data":{}}`, func(c *corev1.ConfigMap) { c.Data = nil }, nil},
	})
}

func TestDiffOfScalars(t *testing.T) {
	sized := `{"spec":{"replicas":3,"paused":true,"strategy":{"rollingUpdate":{"maxSurge":1}},"template":{"spec":{"securityContext":{"runAsUser":7,"runAsNonRoot":true}}}}}`
	runPatchCases(t, appsv1.SchemeGroupVersion.WithKind("Deployment"), []patchCase[*appsv1.Deployment]{
		{"a pointer to zero", sized, func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](0) }, []string{`replace /spec/replicas 0`}},
		{"a pointer to nothing", sized, func(d *appsv1.Deployment) { d.Spec.Replicas = nil }, []string{`remove /spec/replicas`}},
		{"a new pointer to zero", `{"spec":{}}`, func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](0) }, []string{`add /spec/replicas 0`}},
		{"another pointer to the same", sized, func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](3) }, nil},
		{"false is left out", sized, func(d *appsv1.Deployment) { d.Spec.Paused = false }, []string{`remove /spec/paused`}},
		{"true", `{"spec":{}}`, func(d *appsv1.Deployment) { d.Spec.Paused = true }, []string{`add /spec/paused true`}},
		{
			"a deep zero", sized, func(d *appsv1.Deployment) { d.Spec.Template.Spec.SecurityContext.RunAsUser = ptr.To[int64](0) },
			[]string{`replace /spec/template/spec/securityContext/runAsUser 0`},
		},
		{
			"a deep false", sized, func(d *appsv1.Deployment) { d.Spec.Template.Spec.SecurityContext.RunAsNonRoot = new(false) },
			[]string{`replace /spec/template/spec/securityContext/runAsNonRoot false`},
		},
		{"number to string", sized, func(d *appsv1.Deployment) {
			d.Spec.Strategy.RollingUpdate.MaxSurge = new(intstr.FromString("25%"))
		}, []string{`replace /spec/strategy/rollingUpdate/maxSurge "25%"`}},
		{"a time", `{"metadata":{}}`, func(d *appsv1.Deployment) {
			d.CreationTimestamp = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
		}, []string{`add /metadata/creationTimestamp "2026-01-02T03:04:05Z"`}},
		{
			"no time any more", `{"metadata":{"creationTimestamp":"2026-01-02T03:04:05Z"}}`,
			func(d *appsv1.Deployment) { d.CreationTimestamp = metav1.Time{} },
			[]string{`remove /metadata/creationTimestamp`},
		},
		{
			"zero time of another zone", `{"metadata":{"creationTimestamp":"2026-01-02T03:04:05Z"}}`,
			func(d *appsv1.Deployment) { d.CreationTimestamp = metav1.Time{Time: time.Time{}.Local()} },
			[]string{`remove /metadata/creationTimestamp`},
		},
		{"the same time in another zone", `{"metadata":{"creationTimestamp":"2026-01-02T03:04:05Z"}}`, func(d *appsv1.Deployment) {
			d.CreationTimestamp = metav1.NewTime(d.CreationTimestamp.In(time.FixedZone("", 3600)))
		}, nil},
		{
			"an absent struct", `{"spec":{}}`, func(d *appsv1.Deployment) { d.Spec.Template.Spec.NodeName = "n" },
			[]string{`add /spec/template {"metadata":{},"spec":{"containers":null,"nodeName":"n"}}`},
		},
		{
			"a null struct", `{"spec":{"template":{"spec":null}}}`, func(d *appsv1.Deployment) { d.Spec.Template.Spec.NodeName = "n" },
			[]string{`add /spec/template/spec {"containers":null,"nodeName":"n"}`},
		},
	})
}

func TestDiffOfQuantitiesAndBytes(t *testing.T) {
	limits := func(list corev1.ResourceList) string {
		data, _ := json.Marshal(list)
		return fmt.Sprintf(`{"spec":{"containers":[{"name":"c","resources":{"limits":%s}}]}}`, data)
	}
	milli := `{"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"1000m"}}}]}}`
	runPatchCases(t, coreKind("Pod"), []patchCase[*corev1.Pod]{
		{"the same quantity", milli, func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits["cpu"] = resource.MustParse("1") }, nil},
		{
			"another quantity", milli, func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits["cpu"] = resource.MustParse("2") },
			[]string{`replace /spec/containers/0/resources/limits/cpu "2"`},
		},
		{
			"beside a quantity", milli, func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits["memory"] = resource.MustParse("1Gi") },
			[]string{`add /spec/containers/0/resources/limits/memory "1Gi"`},
		},
		{"zero", limits(corev1.ResourceList{"cpu": resource.MustParse("1")}), func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits["cpu"] = resource.Quantity{}
		}, []string{`replace /spec/containers/0/resources/limits/cpu "0"`}},
		{"resources are absent", `{"spec":{"containers":[{"name":"c"}]}}`, func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("100m")}
		}, []string{`add /spec/containers/0/resources {"requests":{"cpu":"100m"}}`}},
	})
	runPatchCases(t, coreKind("Secret"), []patchCase[*corev1.Secret]{
		{"bytes", `{"data":{"a":"AAE=","b":"eA=="}}`, func(s *corev1.Secret) { s.Data["a"] = []byte{1, 0} }, []string{`replace /data/a "AQA="`}},
		{"new bytes", `{}`, func(s *corev1.Secret) { s.Data = map[string][]byte{"a": {0xff}} }, []string{`add /data {"a":"/w=="}`}},
		{"no bytes", `{"data":{"a":"AAE="}}`, func(s *corev1.Secret) { s.Data["a"] = []byte{} }, []string{`replace /data/a ""`}},
		{"no bytes for null", `{"data":{"a":null}}`, func(s *corev1.Secret) { s.Data["a"] = []byte{} }, nil},
	})
}
