package footprint_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	kjson "sigs.k8s.io/json"

	"github.com/postern-dev/postern/internal/footprint"
	"github.com/postern-dev/postern/internal/heap"
)

// list returns n copies of item, separated by commas, between before and after.
func list(before, item, after string, n int) []byte {
	return []byte(before + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + after)
}

// numbered returns a list in which each item contains its number.
func numbered(before, item, after string, n int) []byte {
	items := make([]string, n)
	for i := range items {
		items[i] = strings.ReplaceAll(item, "#", fmt.Sprint(i))
	}
	return []byte(before + strings.Join(items, ",") + after)
}

// TestOf compares footprints with the memory of decoded objects. A slice may have up to half
// as much additional capacity, so a footprint is between two thirds of that memory and a
// little more than that memory.
func TestOf(t *testing.T) {
	pod, role, untyped := reflect.TypeFor[corev1.Pod](), reflect.TypeFor[rbacv1.Role](), reflect.Type(nil)
	for _, c := range []struct {
		name string
		t    reflect.Type
		text []byte
	}{
		{"containers", pod, list(`{"spec":{"containers":[`, `{}`, `]}}`, 20_000)},
		{"no containers", pod, list(`{"spec":{"containers":[`, `null`, `]}}`, 20_000)},
		{"containers with a context each", pod, list(`{"spec":{"containers":[`, `{"securityContext":{},"livenessProbe":{"exec":{}}}`, `]}}`, 20_000)},
		{"volumes", pod, list(`{ "spec" : { "volumes" : [ `, "{} ", `] } }`, 40_000)},
		{"tolerations", pod, list(`{"spec":{"tolerations":[`, `{"key":"\"]"}`, `]}}`, 100_000)},
		{"environment", pod, numbered(`{"spec":{"containers":[{"env":[`, `{"name":"VARIABLE_#","value":"the value of it"}`, `]}]}}`, 50_000)},
		{"labels", pod, numbered(`{"metadata":{"labels":{`, `"key-#":"value-#"`, `}}}`, 50_000)},
		{"quantities", pod, numbered(`{"spec":{"overhead":{`, `"key-#":"1"`, `}}}`, 50_000)},
		{"many quantities", pod, list(`{"spec":{"containers":[`, `{"resources":{"limits":{"cpu":"1","memory":"2Gi"}}}`, `]}}`, 10_000)},
		{"rules", role, list(`{"rules":[`, `{"verbs":["get"]}`, `]}`, 50_000)},
		{"managed fields", pod, list(`{"metadata":{"managedFields":[`, `{"manager":"m","fieldsV1":{"f:a":{"f:b":{}}}}`, `]}}`, 20_000)},
		{"untyped objects", untyped, list(`{"spec":[`, `{"":0}`, `]}`, 50_000)},
		{"untyped objects with ten members", untyped, list(`{"spec":[`, `{"a":0,"b":1,"c":2,"d":3,"e":4,"f":5,"g":6,"h":7,"i":8,"j":9}`, `]}`, 10_000)},
		{"untyped empty objects", untyped, list(`{"spec":[`, `{}`, `]}`, 100_000)},
		{"untyped lists", untyped, list(`{"spec":[`, `[1000,"a"]`, `]}`, 100_000)},
		{"untyped members", untyped, numbered(`{"spec":{`, `"key-#":"value-#"`, `}}`, 50_000)},
	} {
		actual := heap.Kept(func() any {
			var v any
			if c.t != nil {
				v = reflect.New(c.t).Interface()
			} else {
				v = &map[string]any{}
			}
			if err := kjson.UnmarshalCaseSensitivePreserveInts(c.text, v); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			return v
		})
		got := footprint.Of(c.text, c.t)
		if ratio := float64(got) / float64(actual); ratio < 0.65 || ratio > 1.8 {
			t.Errorf("%s: got %d bytes, %.2f of the %d that it takes", c.name, got, ratio, actual)
		}
		t.Logf("%-34s %8d bytes of text, %9d measured, %9d computed", c.name, len(c.text), actual, got)
	}
}

// TestOfProtobuf compares footprints with the memory of objects that are decoded from protobuf, as TestOf does.
func TestOfProtobuf(t *testing.T) {
	long := strings.Repeat("x", 100)
	labels := map[string]string{}
	for i := range 50_000 {
		labels[fmt.Sprint("key-", i)] = "value"
	}
	amounts := corev1.ResourceList{}
	for i := range 50_000 {
		amounts[corev1.ResourceName(fmt.Sprint("key-", i))] = resource.MustParse("1")
	}
	seconds := int64(1)
	affinity := &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: make([]corev1.NodeSelectorTerm, 300_000),
	}}}
	for _, c := range []struct {
		name string
		obj  interface{ Marshal() ([]byte, error) }
	}{
		{"empty terms", &corev1.Pod{Spec: corev1.PodSpec{Affinity: affinity}}},
		{"containers", &corev1.Pod{Spec: corev1.PodSpec{Containers: make([]corev1.Container, 10_000)}}},
		{"containers with a context each", &corev1.Pod{Spec: corev1.PodSpec{Containers: repeated(10_000, corev1.Container{
			SecurityContext: &corev1.SecurityContext{}, LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{}}},
		})}}},
		{"tolerations", &corev1.Pod{Spec: corev1.PodSpec{Tolerations: repeated(50_000, corev1.Toleration{Key: "key", TolerationSeconds: &seconds})}}},
		{"environment", &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Env: repeated(50_000, corev1.EnvVar{Name: "VARIABLE", Value: long})}}}}},
		{"arguments", &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Args: make([]string, 200_000)}}}}},
		{"labels", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: labels}}},
		{"quantities", &corev1.Pod{Spec: corev1.PodSpec{Overhead: amounts}}},
		{"managed fields", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ManagedFields: repeated(20_000, metav1.ManagedFieldsEntry{
			Manager: "m", Time: &metav1.Time{Time: time.Unix(1, 0)}, FieldsV1: metav1.NewFieldsV1(`{"f:a":{}}`),
		})}}},
		{"secrets", &corev1.ServiceAccount{Secrets: make([]corev1.ObjectReference, 50_000)}},
		{"data", &corev1.Secret{Data: map[string][]byte{"key": make([]byte, 4<<20)}}},
		{"groups", &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{Extra: map[string]authorizationv1.ExtraValue{"key": make([]string, 200_000)}}}},
		{"ordinary pods", &corev1.PodList{Items: repeated(5_000, ordinaryPod())}},
	} {
		text, err := c.obj.Marshal()
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		typ := reflect.TypeOf(c.obj).Elem()
		actual := heap.Kept(func() any {
			v := reflect.New(typ).Interface()
			if err := v.(interface{ Unmarshal([]byte) error }).Unmarshal(text); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			return v
		})
		got := footprint.OfProtobuf(text, typ)
		if ratio := float64(got) / float64(actual); ratio < 0.65 || ratio > 1.8 {
			t.Errorf("%s: got %d bytes, %.2f of the %d that it takes", c.name, got, ratio, actual)
		}
		t.Logf("%-34s %8d bytes of protobuf, %9d measured, %9d computed", c.name, len(text), actual, got)
	}
}

// TestEveryListInProtobuf makes each list of each type of k8s.io/api long. Some lists say "opt" in their tags, or nothing.
func TestEveryListInProtobuf(t *testing.T) {
	const items = 1000
	lists, seen := 0, map[reflect.Type]bool{}
	check := func(typ reflect.Type) {
		if typ.Kind() != reflect.Struct {
			return
		}
		for field := range typ.Fields() {
			if field.Type.Kind() != reflect.Slice || field.Type.Elem().Kind() == reflect.Uint8 || !strings.Contains(field.Tag.Get("protobuf"), ",") {
				continue
			}
			v := reflect.New(typ)
			list := reflect.MakeSlice(field.Type, items, items)
			for i := range items {
				if item := list.Index(i); item.Kind() == reflect.Pointer {
					item.Set(reflect.New(item.Type().Elem()))
				}
			}
			v.Elem().FieldByIndex(field.Index).Set(list)
			m, ok := reflect.TypeAssert[interface{ Marshal() ([]byte, error) }](v)
			if !ok {
				continue
			}
			data, err := m.Marshal()
			if err != nil {
				t.Errorf("%v.%s: %v", typ, field.Name, err)
				continue
			}
			lists++
			least := items * int64(field.Type.Elem().Size())
			if got := footprint.OfProtobuf(data, typ); got < least || got > 2*least+int64(len(data))+int64(typ.Size()) {
				t.Errorf("%v.%s: got %d bytes, want %d at least", typ, field.Name, got, least)
			}
		}
	}
	for gvk, typ := range scheme.Scheme.AllKnownTypes() {
		if gvk.Version != kruntime.APIVersionInternal {
			walk(typ, seen, func(reflect.Type) {})
		}
	}
	for typ := range seen {
		check(typ)
	}
	if lists < 600 {
		t.Errorf("Got %d lists, want 600 at least", lists)
	}
}

func repeated[T any](n int, item T) []T {
	items := make([]T, n)
	for i := range items {
		items[i] = item
	}
	return items
}

func ordinaryPod() corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-7d4f9c6b8-x2x7z", Namespace: "shop", Labels: map[string]string{"app": "web", "pod-template-hash": "7d4f9c6b8"}},
		Spec: corev1.PodSpec{
			NodeName: "node-1", ServiceAccountName: "default",
			Containers: []corev1.Container{{
				Name: "web", Image: "registry.example/shop/web:v1.2.3", Env: repeated(10, corev1.EnvVar{Name: "SOME_VARIABLE", Value: "the value of it"}),
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("1Gi")}},
			}},
			Volumes: []corev1.Volume{{Name: "token", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "token"}}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: repeated(5, corev1.PodCondition{Type: "Ready", Status: "True"})},
	}
}

// TestProtobufThatIsNotValid covers data that ends early, and data of another type.
func TestProtobufThatIsNotValid(t *testing.T) {
	pod := ordinaryPod()
	data, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for i := range data {
		footprint.OfProtobuf(data[:i], reflect.TypeFor[corev1.Pod]())
		footprint.OfProtobuf(data[i:], reflect.TypeFor[corev1.Service]())
	}
}

// TestWhatIsNotDecoded covers text that decoding ignores.
func TestWhatIsNotDecoded(t *testing.T) {
	pod := reflect.TypeFor[corev1.Pod]()
	for name, text := range map[string]string{
		"nothing": "", "null": "null", "an empty pod": "{}", "an unknown field": `{"specs":{"containers":[{},{},{}]},"x":[[1,"]"],{"a":"\\\""}]}`,
		"the wrong case": `{"Spec":{"Containers":[{}]}}`, "no list": `{"spec":{"containers":{"a":1}}}`, "half of one": `{"spec":{"containers":[{"na`,
		"nested": strings.Repeat("[", 9000), "a field that is not decoded": `{"TypeMeta":{}}`,
	} {
		if got := footprint.Of([]byte(text), pod) - int64(pod.Size()); got < 0 || got > 4*408 {
			t.Errorf("%s: got %d bytes besides the pod, want none", name, got)
		}
	}
	if got, want := footprint.Of([]byte(`{"\u0073pec":{"volumes":[{},{},{},{}]}}`), pod)-int64(pod.Size()), int64(4*256); got != want {
		t.Errorf("An escaped name: got %d, want %d", got, want)
	}
}

// TestMemoryOfProtobuf bounds the memory of a stored object by its type. List items are the
// most numerous parts of an object.
func TestMemoryOfProtobuf(t *testing.T) {
	// Items that validation or another limit prevents from being empty.
	excused := map[string]string{
		"PolicyRule": "needs a verb and a resource", "ResourceRule": "is never stored", "Device": "has at most 128 siblings",
		"Volume": "needs a name of its own", "PolicyRulesWithSubjects": "needs subjects", "EndpointSubset": "needs addresses",
	}
	seen := map[reflect.Type]bool{}
	for gvk, typ := range scheme.Scheme.AllKnownTypes() {
		if !strings.HasSuffix(gvk.Kind, "List") {
			walk(typ, seen, func(item reflect.Type) {
				sized, ok := reflect.TypeAssert[interface{ Size() int }](reflect.New(item))
				if !ok || excused[item.Name()] != "" {
					return
				}
				// Two bytes are the tag and the length of the item.
				if ratio := float64(item.Size()) / float64(sized.Size()+2); ratio > footprint.BytesPerProtobuf {
					t.Errorf("%v takes %d bytes, %.1f for each byte of protobuf, want at most %d", item, item.Size(), ratio, footprint.BytesPerProtobuf)
				}
			})
		}
	}
}

// walk calls visit with the types of the items of all lists in a type.
func walk(t reflect.Type, seen map[reflect.Type]bool, visit func(reflect.Type)) {
	if seen[t] {
		return
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Slice:
		visit(t.Elem())
		walk(t.Elem(), seen, visit)
	case reflect.Pointer, reflect.Map:
		walk(t.Elem(), seen, visit)
	case reflect.Struct:
		for field := range t.Fields() {
			walk(field.Type, seen, visit)
		}
	default:
	}
}

func BenchmarkOf(b *testing.B) {
	text := numbered(`{"spec":{"containers":[{"env":[`, `{"name":"VARIABLE_#","value":"the value of it"}`, `]}]}}`, 50_000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		footprint.Of(text, reflect.TypeFor[corev1.Pod]())
	}
}

func BenchmarkOfProtobuf(b *testing.B) {
	data := thousandPods(b)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		footprint.OfProtobuf(data, reflect.TypeFor[corev1.PodList]())
	}
}

// BenchmarkDecoding is what BenchmarkOfProtobuf compares with.
func BenchmarkDecoding(b *testing.B) {
	data := thousandPods(b)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if err := (&corev1.PodList{}).Unmarshal(data); err != nil {
			b.Fatal(err)
		}
	}
}

// thousandPods returns a list of ordinary pods in protobuf.
func thousandPods(b *testing.B) []byte {
	b.Helper()
	list := corev1.PodList{Items: repeated(1_000, ordinaryPod())}
	data, err := list.Marshal()
	if err != nil {
		b.Fatal(err)
	}
	return data
}
