package app

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
)

// trimmed removes the fields that no plugin reads from an object before it is cached: the managed fields, and the
// images, conditions and volumes of a Node's status. A Node has up to 50 images, each with several names, which are
// most of its memory.
func trimmed(obj any) (any, error) {
	if m, err := meta.Accessor(obj); err == nil {
		m.SetManagedFields(nil)
	}
	if node, ok := obj.(*corev1.Node); ok {
		node.Status.Images, node.Status.Conditions = nil, nil
		node.Status.VolumesInUse, node.Status.VolumesAttached = nil, nil
	}
	return obj, nil
}
