package edges

import (
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/internal/seed"
)

func example() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}, Spec: corev1.PodSpec{
		Containers:                    []corev1.Container{{Name: "first"}, {Name: "second"}},
		TerminationGracePeriodSeconds: new(int64(1)),
	}}
}

// find returns the one change with the path and the value.
func find(t *testing.T, path, value string) Change {
	t.Helper()
	var found []Change
	for _, c := range Of(example()) {
		if c.Path == path && c.Value == value {
			found = append(found, c)
		}
	}
	if len(found) != 1 {
		t.Fatalf("Got %d changes of %s to %s, want 1", len(found), path, value)
	}
	return found[0]
}

func TestEachChange(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Of(example()) {
		if seen[c.String()] {
			t.Errorf("There are two changes %s", c)
		}
		seen[c.String()] = true
	}
	if len(seen) < 10_000 {
		t.Errorf("Got %d changes, want those of all fields", len(seen))
	}
	for _, c := range Some(example(), seed.Chance(t), 2_000) {
		original := example()
		changed := c.Make(original).(*corev1.Pod)
		if !reflect.DeepEqual(original, example()) {
			t.Fatalf("%s changes the example", c)
		}
		if size := changed.Size(); size > 1_500_000 {
			t.Errorf("%s makes an object of %d bytes, which etcd does not store", c, size)
		}
	}
}

// TestLists makes each list of an object long, and each text.
func TestLists(t *testing.T) {
	lists := map[string]int{}
	for _, l := range Lists(example()) {
		lists[l.String()] = l.Fit(example(), 100_000)
	}
	for _, name := range []string{"spec.containers: many items", "spec.tolerations: many items", "metadata.labels: many entries"} {
		if lists[name] < 1_000 {
			t.Errorf("Got %d items in %s, want as many as fit", lists[name], name)
		}
	}
	for _, l := range Lists(example()) {
		pod := l.Make(example(), lists[l.String()]).(*corev1.Pod)
		if size := pod.Size(); size > 100_000 || size < 80_000 && lists[l.String()] < many {
			t.Errorf("%s: got a pod of %d bytes with %d items", l, size, lists[l.String()])
		}
		if used := l.Path == "metadata.labels" || l.Path == "spec.containers"; l.Used != used {
			t.Errorf("%s: used %t, want %t", l, l.Used, used)
		}
	}
	sidecars := example()
	sidecars.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"example.com/gpu": resource.MustParse("1")}
	for _, l := range Lists(sidecars) {
		if l.String() == "spec.containers: many items with keys of their own" {
			pod := l.Make(sidecars, 3).(*corev1.Pod)
			if requests := pod.Spec.Containers[2].Resources.Requests; len(requests) != 1 || !requests["example.com/gpu2"].Equal(resource.MustParse("1")) {
				t.Errorf("Got %v", requests)
			}
			return
		}
	}
	t.Error("There are no items with keys of their own")
}

func TestTexts(t *testing.T) {
	texts := Texts(example())
	if len(texts) != 2 {
		t.Fatalf("Got %v, want the names of the containers", texts)
	}
	pod := texts[1].Make(example(), 5).(*corev1.Pod)
	if texts[1].Path != "spec.containers[1].name" || pod.Spec.Containers[1].Name != "secondaaaaa" {
		t.Errorf("Got %s: %v", texts[1].Path, pod.Spec.Containers)
	}
}

func TestOrder(t *testing.T) {
	text := func() (out []string) {
		for _, c := range Of(example()) {
			out = append(out, c.String())
		}
		return out
	}
	if first := text(); !slices.Equal(first, text()) {
		t.Error("Got another order at the second call")
	}
}

func TestChanges(t *testing.T) {
	pod := func(path, value string) *corev1.Pod {
		t.Helper()
		return find(t, path, value).Make(example()).(*corev1.Pod)
	}
	if p := pod("spec.containers[1].name", "63 characters"); p.Spec.Containers[0].Name != "first" || len(p.Spec.Containers[1].Name) != 63 {
		t.Errorf("Got %v", p.Spec.Containers)
	}
	if p := pod("spec.containers", "many items"); len(p.Spec.Containers) < 10_000 || p.Spec.Containers[7].Name != "first7" {
		t.Errorf("Got %d containers", len(p.Spec.Containers))
	}
	if p := pod("spec.terminationGracePeriodSeconds", "none"); p.Spec.TerminationGracePeriodSeconds != nil {
		t.Errorf("Got %v", *p.Spec.TerminationGracePeriodSeconds)
	}
	if p := pod("spec.securityContext.runAsUser", "-1"); *p.Spec.SecurityContext.RunAsUser != -1 {
		t.Errorf("Got %v", p.Spec.SecurityContext)
	}
	if p := pod("spec.volumes[0].csi.driver", "a dash"); p.Spec.Volumes[0].CSI.Driver != "-" {
		t.Errorf("Got %v", p.Spec.Volumes)
	}
	if p := pod("metadata.labels", "the key a star"); p.Labels["*"] != "b" || p.Labels["a"] != "b" {
		t.Errorf("Got %v", p.Labels)
	}
	if p := pod("metadata.labels", "the value a star"); p.Labels["a"] != "*" {
		t.Errorf("Got %v", p.Labels)
	}
	if p := pod("spec.containers[0].resources.limits", "the value 8Ei"); len(p.Spec.Containers[0].Resources.Limits) != 1 {
		t.Errorf("Got %v", p.Spec.Containers[0].Resources)
	}
	if p := pod("metadata.creationTimestamp", "after the year 9999"); p.CreationTimestamp.Year() != 10000 {
		t.Errorf("Got %v", p.CreationTimestamp)
	}
	if p := pod("metadata.managedFields[0].fieldsV1", "1000 levels"); p.ManagedFields[0].FieldsV1 == nil {
		t.Errorf("Got %v", p.ManagedFields)
	}
}
