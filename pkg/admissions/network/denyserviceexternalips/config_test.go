package denyserviceexternalips

import (
	"fmt"
	"math"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/postern-dev/postern/pkg/admit"
)

// TestManyGroupsAndAddresses requires that the time does not grow with the product of the two numbers.
func TestManyGroupsAndAddresses(t *testing.T) {
	allowed, err := load([]byte(`{"allow":[{"cidrs":["192.0.2.0/24"],"groups":["g"]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	p := &plugin{allowed}
	timeOf := func(n int) time.Duration {
		r, service := &admit.Request{AdmissionRequest: &admissionv1.AdmissionRequest{}}, &corev1.Service{}
		for i := range n {
			r.UserInfo.Groups = append(r.UserInfo.Groups, fmt.Sprint("h", i))
			service.Spec.ExternalIPs = append(service.Spec.ExternalIPs, fmt.Sprintf("192.0.2.%d", i%256))
		}
		r.UserInfo.Groups = append(r.UserInfo.Groups, "g")
		shortest := time.Duration(math.MaxInt64)
		for range 3 {
			start := time.Now()
			if err := p.validate(t.Context(), r, service, nil); err != nil {
				t.Fatal(err)
			}
			shortest = min(shortest, time.Since(start))
		}
		return shortest
	}
	if small, large := timeOf(500), timeOf(4_000); large > 24*small {
		t.Errorf("It takes %v for 500 groups and addresses, and %v for 4,000", small, large)
	}
}
