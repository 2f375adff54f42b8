package limitranger

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/postern-dev/postern/internal/heap"
	"github.com/postern-dev/postern/internal/proportion"
)

// podOf returns a pod with n containers without resources.
func podOf(n int) *corev1.Pod {
	pod := &corev1.Pod{}
	for i := range n {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", i), Image: "i"})
	}
	return pod
}

// defaults returns the same default for some resources, as limits or requests.
func defaults(limits bool, names ...string) corev1.ResourceRequirements {
	list := corev1.ResourceList{}
	for _, name := range names {
		list[corev1.ResourceName(name)] = resource.MustParse("1")
	}
	if limits {
		return corev1.ResourceRequirements{Limits: list}
	}
	return corev1.ResourceRequirements{Requests: list}
}

// TestWhatIsHeldForDefaults compares what is held with what the defaults take.
func TestWhatIsHeldForDefaults(t *testing.T) {
	many := strings.Fields("cpu memory ephemeral-storage a.example/1 a.example/2 a.example/3 a.example/4 a.example/5 a.example/6")
	most := append(strings.Fields("b.example/1 b.example/2 b.example/3 b.example/4 b.example/5 b.example/6"), many...)
	full := podOf(2_000)
	for i := range full.Spec.Containers {
		full.Spec.Containers[i].Resources.Limits = defaults(true, most[1:]...).Limits // a map of its own
	}
	for name, tc := range map[string]struct {
		pod      *corev1.Pod
		defaults []corev1.ResourceRequirements
	}{
		"one limit":                            {podOf(10_000), []corev1.ResourceRequirements{defaults(true, "cpu")}},
		"limits and requests":                  {podOf(5_000), []corev1.ResourceRequirements{defaults(true, "cpu", "memory"), defaults(false, "cpu", "memory")}},
		"many limits":                          {podOf(3_000), []corev1.ResourceRequirements{defaults(true, many...)}},
		"a fifteenth limit":                    {full, []corev1.ResourceRequirements{defaults(true, most...)}},
		"two LimitRanges for one map":          {podOf(5_000), []corev1.ResourceRequirements{defaults(true, "cpu"), defaults(true, "memory")}},
		"two LimitRanges for one resource":     {podOf(5_000), []corev1.ResourceRequirements{defaults(true, "cpu"), defaults(true, "cpu")}},
		"two LimitRanges and a map that grows": {podOf(3_000), []corev1.ResourceRequirements{defaults(true, many[:4]...), defaults(true, many[4:]...)}},
	} {
		held, err := growthOf(tc.pod, tc.defaults)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		took := heap.Kept(func() any {
			for _, d := range tc.defaults {
				setDefaults(tc.pod, d)
			}
			return tc.pod
		})
		// A map that grows takes as much as a new one, but leaves the memory of the old one.
		if held < took || held > 5*took/2 {
			t.Errorf("%s: held %d bytes for %d", name, held, took)
		}
	}
}

// TestAPodThatCannotBeStoredWithDefaults is denied before it takes the memory for them.
func TestAPodThatCannotBeStoredWithDefaults(t *testing.T) {
	cpu := []corev1.ResourceRequirements{defaults(true, "cpu"), defaults(false, "cpu")}
	for _, tc := range []struct {
		name       string
		containers int
		defaults   []corev1.ResourceRequirements
		want       bool
	}{
		{"34,000 containers", 34_000, cpu, true},
		{"35,000 containers", 35_000, cpu, false},
		{"35,000 containers without defaults", 35_000, []corev1.ResourceRequirements{defaults(true)}, true},
	} {
		_, err := growthOf(podOf(tc.containers), tc.defaults)
		if (err == nil) != tc.want || err != nil && !apierrors.IsRequestEntityTooLargeError(err) {
			t.Errorf("%s: got %v, want it allowed: %t", tc.name, err, tc.want)
		}
	}
}

// TestWorkForAPodThatCannotBeStored has many containers and many defaults. The work must not grow with their product.
func TestWorkForAPodThatCannotBeStored(t *testing.T) {
	names := make([]string, 10_000)
	for i := range names {
		names[i] = fmt.Sprint("example.com/", i)
	}
	many := []corev1.ResourceRequirements{defaults(true, names...)}
	few, all := podOf(1_000), podOf(16_000)
	deny := func(pod *corev1.Pod) func() {
		return func() {
			if _, err := growthOf(pod, many); err == nil {
				t.Error("The pod was not denied")
			}
		}
	}
	proportion.Check(t, "the containers", 4, deny(all), 1, deny(few))
}
