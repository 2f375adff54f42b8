package noderestriction

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/postern-dev/postern/internal/names"
	"github.com/postern-dev/postern/pkg/admit"
)

// find returns the current object. For a missing object it returns a NotFound error with the message of
// kube-apiserver's listers, which name the resource in the singular. Any other error is a failure, not a denial.
func find[T any](ctx context.Context, client admit.Getter[T], singular schema.GroupResource, name string) (T, error) {
	var none T
	if !names.CanExist(name) {
		return none, admit.Deny(apierrors.NewNotFound(singular, name))
	}
	obj, err := client.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return none, admit.Deny(apierrors.NewNotFound(singular, name))
	case err != nil:
		return none, &lookupError{fmt.Errorf("looking up %s %q: %w", singular, name, err)}
	}
	return obj, nil
}

// lookupError means that an object could not be looked up.
type lookupError struct{ error }

func (e *lookupError) Unwrap() error { return e.error }

func isLookupError(err error) bool {
	_, ok := errors.AsType[*lookupError](err)
	return ok
}

// readAs decodes an object of any version into a type that has no fields but those that are needed and that all versions
// share.
func readAs(obj runtime.RawExtension, into any) error {
	if err := kjson.UnmarshalCaseSensitivePreserveInts(obj.Raw, into); err != nil {
		// The node chose the object.
		return admit.Deny(apierrors.NewBadRequest(fmt.Sprintf("decoding the object: %v", err)))
	}
	return nil
}
