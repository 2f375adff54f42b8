package noderestriction

import (
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/postern-dev/postern/pkg/admissions/admit"
)

// checkLease has a node renew its own lease, by which others see that it is alive.
func checkLease(r *admit.Request, node string) error {
	if r.Namespace != corev1.NamespaceNodeLease {
		return deny(r, "can only access leases in the %q system namespace", corev1.NamespaceNodeLease)
	}
	name, err := objectName(r)
	switch {
	case err != nil:
		return unexpected(r, r.Object)
	case name != node:
		return deny(r, "can only access node lease with the same name as the requesting node")
	}
	return nil
}

// objectName is the name that a request creates something with, or that of what it
// changes.
func objectName(r *admit.Request) (string, error) {
	if r.Operation != admissionv1.Create {
		return r.Name, nil
	}
	m, err := meta.Accessor(r.Object)
	if err != nil {
		return "", err
	}
	return m.GetName(), nil
}
