package noderestriction

import (
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/postern-dev/postern/pkg/admit"
)

// checkSlice allows a node to publish only its own devices. The node authorizer checks updates, because it
// knows the owner of each slice.
func checkSlice(r *admit.Request, node string) error {
	verb, obj, raw := "create", r.Object, r.AdmissionRequest.Object
	switch r.Operation {
	case admissionv1.Create:
	case admissionv1.Delete:
		verb, obj, raw = "delete", r.OldObject, r.AdmissionRequest.OldObject
	default:
		return nil
	}
	if obj == nil {
		return unexpected(r, obj)
	}
	// All versions have this field.
	slice := struct {
		Spec struct {
			NodeName string `json:"nodeName"`
		} `json:"spec"`
	}{}
	if err := readAs(raw, &slice); err != nil {
		return err
	}
	if slice.Spec.NodeName != node {
		return deny(r, "can only %s ResourceSlice with the same NodeName as the requesting node", verb)
	}
	return nil
}
