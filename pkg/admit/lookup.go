package admit

import (
	"context"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/internal/names"
)

// Getter is the Get method of a typed client of client-go.
type Getter[T any] interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
}

// Lister is the Get method of a lister of client-go. For a namespaced kind it is the
// lister of one namespace.
type Lister[T any] interface {
	Get(name string) (T, error)
}

// TooLarge is the annotation of a cached object that has only its name, its UID and
// its version, because the whole object is too large for a cache. Users may set it too,
// which has no other effect than a live GET.
const TooLarge = "postern.dev/too-large"

// Lookup returns an object from the cache or, on a miss, by one live GET: the cache
// lags behind a user who creates an object and then an object that needs it. An object
// that is too large for the cache is a miss.
// Lookup returns a NotFound error unchanged, and wraps every other error, which is
// a failure to decide and never a denial. Lookup sends no GET for a name that no
// object can have.
func Lookup[T any](ctx context.Context, cache Lister[T], live Getter[T], name string) (T, error) {
	obj, err := cache.Get(name)
	// IsNotFound allocates, even for nil.
	if isMiss := err == nil && isTooLarge(obj) || err != nil && apierrors.IsNotFound(err); isMiss && names.CanExist(name) {
		obj, err = live.Get(ctx, name, metav1.GetOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return obj, fmt.Errorf("looking up %s %q: %w", reflect.TypeFor[T]().Elem().Name(), name, err)
	}
	return obj, err
}

func isTooLarge(obj any) bool {
	m, ok := obj.(metav1.Object)
	if !ok {
		return false
	}
	_, ok = m.GetAnnotations()[TooLarge]
	return ok
}
