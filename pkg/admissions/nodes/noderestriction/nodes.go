package noderestriction

import (
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"github.com/postern-dev/postern/pkg/admit"
)

// checkNode allows a node to change only its own Node, and no field of it that decides which pods run on the
// node.
func checkNode(r *admit.Request, name string) error {
	if r.Name != name {
		return deny(r, "node %q is not allowed to modify node %q", name, r.Name)
	}
	switch r.Operation {
	case admissionv1.Create:
		return checkNewNode(r, name)
	case admissionv1.Update:
		return checkChangedNode(r, name)
	default:
		return nil
	}
}

func checkNewNode(r *admit.Request, name string) error {
	node, ok := r.Object.(*corev1.Node)
	if !ok {
		return unexpected(r, r.Object)
	}
	// A node may read the objects that its Node refers to.
	if node.Spec.ConfigSource != nil { //nolint:staticcheck // no kubelet uses it any more, but the field is still there
		return deny(r, "node %q is not allowed to create pods with a non-nil configSource", name)
	}
	if labels := forbiddenLabels(node.Labels, nil); len(labels) > 0 {
		return deny(r, "node %q is not allowed to set the following labels: %s", name, strings.Join(labels, ", "))
	}
	return nil
}

func checkChangedNode(r *admit.Request, name string) error {
	node, ok := r.Object.(*corev1.Node)
	if !ok {
		return unexpected(r, r.Object)
	}
	old, ok := r.OldObject.(*corev1.Node)
	if !ok {
		// Upstream: the message names the type of the object.
		return unexpected(r, r.Object)
	}
	switch {
	// Old kubelets drop the field when they update their status.
	case node.Spec.ConfigSource != nil && !apiequality.Semantic.DeepEqual(node.Spec.ConfigSource, old.Spec.ConfigSource): //nolint:staticcheck // see above
		return deny(r, "node %q is not allowed to update configSource to a new non-nil configSource", name)
	case !apiequality.Semantic.DeepEqual(node.Spec.Taints, old.Spec.Taints):
		return deny(r, "node %q is not allowed to modify taints", name)
	case !apiequality.Semantic.DeepEqual(node.OwnerReferences, old.OwnerReferences):
		return deny(r, "node %q is not allowed to modify ownerReferences", name)
	}
	if labels := forbiddenLabels(node.Labels, old.Labels); len(labels) > 0 {
		return deny(r, "is not allowed to modify labels: %s", strings.Join(labels, ", "))
	}
	return nil
}

// forbiddenLabels returns, in order, the changed labels that a node may not set, change or remove.
func forbiddenLabels(labels, old map[string]string) []string {
	var out []string
	for key, value := range labels {
		if before, ok := old[key]; (!ok || before != value) && isForbiddenLabel(key) {
			out = append(out, key)
		}
	}
	for key := range old {
		if _, ok := labels[key]; !ok && isForbiddenLabel(key) {
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return out
}
