package limitranger

import (
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestTotalOfManyEnds has a sidecar with many resources in front of many init containers. Adding the resources of the one to
// each of the others takes longer than any time-out.
func TestTotalOfManyEnds(t *testing.T) {
	many := corev1.ResourceList{}
	for i := range 20_000 {
		many[corev1.ResourceName("example.com/"+strconv.Itoa(i))] = resource.MustParse("1")
	}
	one := corev1.ResourceList{"example.com/0": resource.MustParse("2"), corev1.ResourceCPU: resource.MustParse("1")}
	spec := &corev1.PodSpec{InitContainers: []corev1.Container{
		{RestartPolicy: new(corev1.ContainerRestartPolicyAlways), Resources: corev1.ResourceRequirements{Requests: many}},
		{Resources: corev1.ResourceRequirements{Requests: one}},
	}}
	spec.InitContainers = append(spec.InitContainers, make([]corev1.Container, 200_000)...)
	got := (&limitRanger{}).total(spec, requestsOf)
	for name, want := range map[corev1.ResourceName]int64{"example.com/0": 3, "example.com/1": 1, corev1.ResourceCPU: 1} {
		if q := got[name]; q.Value() != want {
			t.Errorf("Got %v of %s, want %d", &q, name, want)
		}
	}
	if len(got) != len(many)+1 {
		t.Errorf("Got %d resources, want %d", len(got), len(many)+1)
	}
}
