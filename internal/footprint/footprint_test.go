package footprint_test

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/kubernetes/scheme"
	kjson "sigs.k8s.io/json"

	"github.com/postern-dev/postern/internal/footprint"
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

// live returns the size of the memory that the result of make references.
func live(make func() any) int64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	v := make()
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(v)
	return int64(after.HeapAlloc) - int64(before.HeapAlloc)
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
		actual := live(func() any {
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
