package noderestriction

import (
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/diff"

	"github.com/postern-dev/postern/pkg/admit"
)

// claim allows a node to update only the capacity, the conditions and the resize status of a
// PersistentVolumeClaim.
func (n *nodeRestriction) claim(r *admit.Request, node string) error {
	if r.SubResource != "status" {
		return deny(r, "may only update PVC status")
	}
	if r.Operation != admissionv1.Update {
		return deny(r, "unexpected operation %q", r.Operation)
	}
	old, ok := r.OldObject.(*corev1.PersistentVolumeClaim)
	if !ok {
		return unexpected(r, r.OldObject)
	}
	claim, ok := r.Object.(*corev1.PersistentVolumeClaim)
	if !ok {
		return unexpected(r, r.Object)
	}
	before, after := n.kept(old), n.kept(claim)
	if !apiequality.Semantic.DeepEqual(before, after) {
		return deny(r, "node %q is not allowed to update fields other than status.quantity and status.conditions: %s", node, difference(before, after))
	}
	return nil
}

// maxShown is the size of two claims, in bytes as protobuf, whose difference is shown.
const maxShown = 32 << 10

// difference shows how two claims differ. The time for this grows with more than the square of their size, which users
// and the node choose: 0.12 s at maxShown.
func difference(before, after *corev1.PersistentVolumeClaim) string {
	if size := before.Size() + after.Size(); size > maxShown {
		return fmt.Sprintf("the difference is not shown, because the claims have %d bytes", size)
	}
	return diff.Diff(before, after)
}

// kept returns the part of a claim that a node must not change.
func (n *nodeRestriction) kept(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	out := claim.DeepCopy()
	out.TypeMeta = metav1.TypeMeta{}
	// An update without a resourceVersion applies to any version.
	out.ResourceVersion = ""
	out.ManagedFields = nil
	out.Status.Capacity, out.Status.Conditions = nil, nil
	if n.features.Enabled(expansionRecovery) {
		out.Status.AllocatedResources, out.Status.AllocatedResourceStatuses = nil, nil
	}
	return out
}

// celKeepsClaim is the CEL expression for a claim whose kept part is unchanged.
func celKeepsClaim(recovery bool) string {
	same := func(path string, but ...string) string {
		fields := func(object, other string) string {
			own, other := admit.CELValue(object+"."+path, "{}"), admit.CELValue(other+"."+path, "{}")
			return "!" + admit.CELAny(own, "f", fmt.Sprintf("!(f in %s || f in %s && %s[f] == %s[f])", admit.CELStrings(but), other, other, own))
		}
		return fields("object", "oldObject") + " && " + fields("oldObject", "object")
	}
	status := []string{"capacity", "conditions"}
	if recovery {
		status = append(status, "allocatedResources", "allocatedResourceStatuses")
	}
	return same("metadata", "resourceVersion", "managedFields") + " && " + unchanged("spec", "{}") + " && " + same("status", status...)
}
