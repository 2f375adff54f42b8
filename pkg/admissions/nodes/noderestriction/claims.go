package noderestriction

import (
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/diff"

	"github.com/postern-dev/postern/pkg/admissions/admit"
)

// claim has a node say how large a volume has become, and nothing else about a claim.
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
		return deny(r, "node %q is not allowed to update fields other than status.quantity and status.conditions: %v", node, diff.Diff(before, after))
	}
	return nil
}

// kept returns what a node has to leave as it is.
func (n *nodeRestriction) kept(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	out := claim.DeepCopy()
	out.TypeMeta = metav1.TypeMeta{}
	// One without a version is for whatever version there is.
	out.ResourceVersion = ""
	out.ManagedFields = nil
	out.Status.Capacity, out.Status.Conditions = nil, nil
	if n.features.Enabled(expansionRecovery) {
		out.Status.AllocatedResources, out.Status.AllocatedResourceStatuses = nil, nil
	}
	return out
}

// celKeepsClaim is the CEL for a claim that is kept so.
func celKeepsClaim(recovery bool) string {
	same := func(path string, but ...string) string {
		fields := func(object, other string) string {
			other = admit.CELValue(other+"."+path, "{}")
			return fmt.Sprintf("%s.all(f, f in %s || f in %s && %s[f] == %s[f])",
				admit.CELValue(object+"."+path, "{}"), admit.CELStrings(but), other, other, admit.CELValue(object+"."+path, "{}"))
		}
		return fields("object", "oldObject") + " && " + fields("oldObject", "object")
	}
	status := []string{"capacity", "conditions"}
	if recovery {
		status = append(status, "allocatedResources", "allocatedResourceStatuses")
	}
	return same("metadata", "resourceVersion", "managedFields") + " && " + unchanged("spec", "{}") + " && " + same("status", status...)
}
