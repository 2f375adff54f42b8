package noderestriction

import (
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/postern-dev/postern/pkg/admit"
)

// checkLease allows a node to renew only its own Lease, which is the heartbeat of the node.
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

// objectName returns the name of the object that a request creates or changes.
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
