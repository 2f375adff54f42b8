// Package finalizers adds finalizers to objects of any type.
package finalizers

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/postern-dev/postern/pkg/admit"
)

// Add appends a finalizer to the object of a request unless the object has it.
func Add(r *admit.Request, finalizer string) error {
	object, err := meta.Accessor(r.Object)
	if err != nil {
		return fmt.Errorf("reading the finalizers: %w", err)
	}
	if finalizers := object.GetFinalizers(); !slices.Contains(finalizers, finalizer) {
		object.SetFinalizers(append(finalizers, finalizer))
	}
	return nil
}
