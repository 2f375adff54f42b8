package app

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
)

// trimmed removes from an object what no plugin reads, before the object is cached: the managed fields, and of a Node
// what grows with its use. A Node has up to 50 images, each with several names, which is most of its memory.
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
