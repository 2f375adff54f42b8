package initialresources

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestReadDescribesAContainerOnce counts allocations. The description of a container contains its name, which may be as
// long as the list of its requests.
func TestReadDescribesAContainerOnce(t *testing.T) {
	allocations := func(n int) float64 {
		c := corev1.Container{Name: strings.Repeat("c", 100), Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{}}}
		for i := range n {
			c.Resources.Requests[corev1.ResourceName(fmt.Sprint("example.com/r", i))] = resource.MustParse("1")
		}
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{c}}}
		pod.Annotations = map[string]string{annotation: prefix + "cpu request for container other"}
		return testing.AllocsPerRun(10, func() { requests{}.read(pod) })
	}
	if few, many := allocations(1), allocations(100); many > few+10 {
		t.Errorf("Got %v allocations for one request and %v for 100", few, many)
	}
}
