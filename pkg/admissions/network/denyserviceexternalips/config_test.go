package denyserviceexternalips

import (
	"fmt"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/postern-dev/postern/internal/proportion"
	"github.com/postern-dev/postern/pkg/admit"
)

// TestManyGroupsAndAddresses requires that the work does not grow with the product of the two numbers.
func TestManyGroupsAndAddresses(t *testing.T) {
	allowed, err := load([]byte(`{"allow":[{"cidrs":["192.0.2.0/24"],"groups":["g"]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	p := &plugin{allowed}
	validate := func(n int) func() {
		r, service := &admit.Request{AdmissionRequest: &admissionv1.AdmissionRequest{}}, &corev1.Service{}
		for i := range n {
			r.UserInfo.Groups = append(r.UserInfo.Groups, fmt.Sprint("h", i))
			service.Spec.ExternalIPs = append(service.Spec.ExternalIPs, fmt.Sprintf("192.0.2.%d", i%256))
		}
		r.UserInfo.Groups = append(r.UserInfo.Groups, "g")
		return func() {
			if err := p.validate(t.Context(), r, service, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	proportion.Check(t, "groups and addresses", 4, validate(8_000), 16, validate(500))
}
