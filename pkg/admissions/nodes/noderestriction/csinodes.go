package noderestriction

import (
	admissionv1 "k8s.io/api/admission/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"github.com/postern-dev/postern/pkg/admit"
)

// csiNode allows a node to write only its own CSINode.
func (n *nodeRestriction) csiNode(r *admit.Request, node string) error {
	name, err := objectName(r)
	switch {
	case err != nil:
		return deny(r, "unable to access the object name")
	case name != node:
		return deny(r, "can only access CSINode with the same name as the requesting node")
	case r.SubResource != "status":
		return nil
	case !n.features.Enabled(csiVolumeHealth):
		return deny(r, "CSIVolumeHealth feature gate is disabled")
	case r.Operation != admissionv1.Update:
		return deny(r, "unexpected operation %q", r.Operation)
	}
	old, ok := r.OldObject.(*storagev1.CSINode)
	if !ok {
		return unexpected(r, r.OldObject)
	}
	csiNode, ok := r.Object.(*storagev1.CSINode)
	switch {
	case !ok:
		return unexpected(r, r.Object)
	case !apiequality.Semantic.DeepEqual(old.Spec, csiNode.Spec):
		return deny(r, "node %q is not allowed to modify CSINode spec via status", node)
	}
	return nil
}
