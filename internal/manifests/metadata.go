package manifests

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// clean removes the metadata that has a meaning only in the old cluster, and returns the removed fields that somebody may
// miss. Owners have other UIDs in a new cluster, so its garbage collector deletes the objects that they own. A finalizer
// whose controller the new cluster lacks keeps an object forever. An object that was being deleted is created anew.
//
// clean keeps the status: API servers ignore it in a new object, and PodSecurityPolicies, PodPresets and roles have none.
func clean(u *unstructured.Unstructured) (missed []string) {
	metadata, ok := u.Object["metadata"].(map[string]any)
	if !ok {
		return nil
	}
	for _, field := range []string{"creationTimestamp", "deletionGracePeriodSeconds", "generation", "managedFields", "resourceVersion", "selfLink", "uid"} {
		delete(metadata, field)
	}
	for _, field := range []string{"deletionTimestamp", "finalizers", "ownerReferences"} {
		value := metadata[field]
		if list, isList := value.([]any); value != nil && (!isList || len(list) > 0) {
			missed = append(missed, "metadata."+field)
		}
		delete(metadata, field)
	}
	annotations, _ := metadata["annotations"].(map[string]any)
	if _, applied := annotations[corev1.LastAppliedConfigAnnotation]; applied {
		if delete(annotations, corev1.LastAppliedConfigAnnotation); len(annotations) == 0 {
			delete(metadata, "annotations")
		}
	}
	return missed
}
