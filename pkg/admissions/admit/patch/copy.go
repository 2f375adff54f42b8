package patch

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Copy returns a copy of an object, to be compared with the object after plugins have changed it. The two share what
// the entries of managedFields point to, the text that is half of a typical pod. Diff finds an entry with another text,
// but no change inside of a text.
func Copy(obj runtime.Object) runtime.Object {
	if _, ok := obj.(runtime.Unstructured); ok {
		return obj.DeepCopyObject()
	}
	meta, ok := obj.(metav1.Object)
	if !ok {
		return obj.DeepCopyObject()
	}
	shared := meta.GetManagedFields()
	meta.SetManagedFields(nil)
	defer meta.SetManagedFields(shared)
	out := obj.DeepCopyObject()
	if copied, ok := out.(metav1.Object); ok {
		copied.SetManagedFields(slices.Clone(shared))
	}
	return out
}
