package nodedeclaredfeaturevalidator

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/postern-dev/postern/pkg/admit"
)

func TestManyRequirementsAreDenied(t *testing.T) {
	half := &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
		{MatchExpressions: make([]corev1.NodeSelectorRequirement, maxRequirements/2)}, {MatchFields: []corev1.NodeSelectorRequirement{{Values: []string{"a"}}}},
	}}
	slice := &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{Devices: []resourcev1.Device{{NodeSelector: half}}}}
	v, request := &validator{}, &admit.Request{AdmissionRequest: &admissionv1.AdmissionRequest{}}
	if err := v.slice(t.Context(), request, slice, nil); err != nil {
		t.Errorf("Got %v, want nothing for a device that represents no resources of its node", err)
	}
	slice.Spec.NodeSelector = half
	const want = "the node selectors of the ResourceSlice have 1004 requirements and values, at most 1000 are supported"
	if err := v.slice(t.Context(), request, slice, nil); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Got %v, want %s", err, want)
	}
}
