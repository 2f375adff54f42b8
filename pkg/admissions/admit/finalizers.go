package admit

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
)

// AddFinalizer appends a finalizer to the object of a request, of whatever type,
// unless it is there.
func AddFinalizer(r *Request, finalizer string) error {
	object, err := meta.Accessor(r.Object)
	if err != nil {
		return fmt.Errorf("reading the finalizers: %w", err)
	}
	if finalizers := object.GetFinalizers(); !slices.Contains(finalizers, finalizer) {
		object.SetFinalizers(append(finalizers, finalizer))
	}
	return nil
}

// CELWithoutFinalizer returns a CEL expression for objects that AddFinalizer would
// change.
func CELWithoutFinalizer(finalizer string) string {
	return "!(" + CELList("object.metadata.finalizers") + ".exists(f, f == '" + finalizer + "'))"
}
