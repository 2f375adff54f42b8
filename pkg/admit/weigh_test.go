package admit_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/pkg/admit"
)

// items returns n copies of item, separated by commas, between before and after.
func items(before, item, after string, n int) string {
	return before + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + after
}

// ordinaryPod returns a typical pod with the given number of bytes.
func ordinaryPod(t *testing.T, size int) string {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"app": "web"}}}
	c := corev1.Container{Name: "c", Image: "registry.example.com/web:1"}
	for i := range size / 48 {
		c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("VARIABLE_%d", i), Value: "the value"})
	}
	pod.Spec.Containers = []corev1.Container{c}
	raw, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestObjectsThatCannotBeStored covers objects that are small as text and large in memory.
// They are denied without decoding.
func TestObjectsThatCannotBeStored(t *testing.T) {
	custom := metav1.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Custom"}
	rec := &recorder{}
	s := service(t, rec.plugin("P", nil, admit.On("pods", create, update)))
	for _, c := range []struct {
		name, object, oldObject string
		kind                    metav1.GroupVersionKind
		want                    string
	}{
		{"containers", items(`{"spec":{"containers":[`, `{}`, `]}}`, 2_400_000), "", metav1.GroupVersionKind{}, "request.object: Request entity too large: a Pod of 7200025 bytes would take 933 MiB"},
		{"no containers", items(`{"spec":{"containers":[`, `null`, `]}}`, 1_000_000), "", metav1.GroupVersionKind{}, "request.object: "},
		{"volumes", items(`{"spec":{"volumes":[`, `{}`, `]}}`, 2_400_000), "", metav1.GroupVersionKind{}, "request.object: "},
		{"tolerations", items(`{"spec":{"tolerations":[`, `{}`, `]}}`, 1_000_000), "", metav1.GroupVersionKind{}, "none that can be stored takes more than 48 MiB"},
		{"an old object", "{}", items(`{"spec":{"containers":[`, `{}`, `]}}`, 1_000_000), metav1.GroupVersionKind{}, "request.oldObject: "},
		{"a custom resource", items(`{"spec":[`, `{"":0}`, `]}`, 1_000_000), "", custom, "a Custom of 7000010 bytes would take"},
		{"a pod that is said to be a custom resource", items(`{"apiVersion":"v1","kind":"Pod","spec":{"containers":[`, `{}`, `]}}`, 500_000), "", custom, "a Pod of"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ar := request(update, c.object, c.oldObject)
			if c.kind.Kind != "" {
				ar.Kind = c.kind
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			resp := s.Mutate(t.Context(), ar)
			runtime.ReadMemStats(&after)
			if resp.Allowed || resp.Result == nil || resp.Result.Code != 413 || !strings.Contains(resp.Result.Message, c.want) {
				t.Errorf("Got %+v, want it denied with %q", resp.Result, c.want)
			}
			if took := after.TotalAlloc - before.TotalAlloc; took > 100<<20 {
				t.Errorf("It took %d MiB", took>>20)
			}
		})
	}
	if len(rec.ran) > 0 {
		t.Errorf("Got %v run, want no plugin", rec.ran)
	}
}

// TestObjectsThatCanBeStored covers objects of the largest size that etcd accepts, or nearly.
func TestObjectsThatCanBeStored(t *testing.T) {
	s := service(t, plugin("P", admit.Handler{Validate: func(context.Context, *admit.Request) error { return nil }}, admit.On("pods", create)))
	for name, object := range map[string]string{
		"an ordinary pod":   ordinaryPod(t, 3<<20),
		"100,000 volumes":   items(`{"spec":{"volumes":[`, `{"name":"abcde","emptyDir":{}}`, `]}}`, 100_000),
		"20,000 containers": items(`{"spec":{"containers":[`, `{"name":"abcde","image":"i","resources":{},"imagePullPolicy":"Always"}`, `]}}`, 20_000),
	} {
		if resp := s.Validate(t.Context(), request(create, object, "")); !resp.Allowed {
			t.Errorf("%s: got %+v, want it allowed", name, resp.Result)
		}
	}
}

// TestWeight compares the weight of requests with the memory at the end of their decision,
// when the object, its copy and the old object exist.
func TestWeight(t *testing.T) {
	var live uint64
	s := service(t, plugin("P", admit.Handler{Mutate: func(_ context.Context, r *admit.Request) error {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		live = m.HeapAlloc
		runtime.KeepAlive(r)
		return nil
	}}, admit.On("pods", create, update)))
	for _, c := range []struct {
		name, object, oldObject string
	}{
		{"containers", items(`{"spec":{"containers":[`, `{}`, `]}}`, 100_000), ""},
		{"volumes", items(`{"spec":{"volumes":[`, `{}`, `]}}`, 150_000), ""},
		{"tolerations", items(`{"spec":{"tolerations":[`, `{}`, `]}}`, 600_000), ""},
		{"an ordinary pod", ordinaryPod(t, 3<<20), ""},
		{"an update", ordinaryPod(t, 3<<20), ordinaryPod(t, 2<<20)},
		{"a small pod", ordinaryPod(t, 4<<10), ""},
	} {
		op := admissionv1.Create
		if c.oldObject != "" {
			op = update
		}
		ar := request(op, c.object, c.oldObject)
		runtime.GC()
		var before runtime.MemStats
		runtime.ReadMemStats(&before)
		if resp := s.Mutate(t.Context(), ar); !resp.Allowed {
			t.Fatalf("%s: got %+v", c.name, resp.Result)
		}
		took, weight := int64(live)-int64(before.HeapAlloc), s.Objects.Weigh(ar)
		t.Logf("%-16s %8d bytes of text take %9d of memory, and weigh %9d", c.name, len(c.object)+len(c.oldObject), took, weight)
		if took > weight {
			t.Errorf("%s: got the weight %d, want more than the %d bytes that it takes", c.name, weight, took)
		}
		review, err := json.Marshal(admissionv1.AdmissionReview{Request: ar})
		if err != nil {
			t.Fatal(err)
		}
		if bound := s.Objects.Bound(review); bound < weight {
			t.Errorf("%s: got the bound %d on the weight %d", c.name, bound, weight)
		}
	}
}
