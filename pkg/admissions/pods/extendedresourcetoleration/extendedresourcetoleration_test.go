package extendedresourcetoleration_test

import (
	"fmt"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/postern-dev/postern/internal/proportion"
	"github.com/postern-dev/postern/pkg/admissions/pods/extendedresourcetoleration"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, extendedresourcetoleration.Plugin) }

// TestManyResourcesAndTolerations requires that the work does not grow with the product of the two numbers.
func TestManyResourcesAndTolerations(t *testing.T) {
	h, err := extendedresourcetoleration.Plugin.New(admit.Deps{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	mutate := func(n int) func() {
		c, pod := corev1.Container{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{}}}, &corev1.Pod{}
		for i := range n {
			c.Resources.Requests[corev1.ResourceName(fmt.Sprint("example.com/r", i))] = resource.MustParse("1")
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: fmt.Sprint("example.com/t", i), Operator: corev1.TolerationOpExists})
		}
		pod.Spec.Containers = []corev1.Container{c}
		return func() {
			r := &admit.Request{AdmissionRequest: &admissionv1.AdmissionRequest{Operation: admissionv1.Create}, Object: pod.DeepCopy()}
			if err := h.Mutate(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
	}
	proportion.Check(t, "resources and tolerations", 4, mutate(8_000), 16, mutate(500))
}
