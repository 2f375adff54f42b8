package admit

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Getter is what a client of client-go has for one kind.
type Getter[T any] interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
}

// Lister is what a lister of client-go has for one kind, in one namespace if the
// kind has them.
type Lister[T any] interface {
	Get(name string) (T, error)
}

// Lookup returns an object from the cache, or, where the cache does not have it,
// by one live GET: an object and what needs it may be created in one breath, and
// the cache lags behind. NotFound is returned as the API server says it. A name
// that no object can have is not asked for: a client would refuse to, with an
// error that does not say NotFound.
func Lookup[T any](ctx context.Context, cache Lister[T], live Getter[T], name string) (T, error) {
	obj, err := cache.Get(name)
	if apierrors.IsNotFound(err) && name != "" && len(content.IsPathSegmentName(name)) == 0 {
		return live.Get(ctx, name, metav1.GetOptions{})
	}
	return obj, err
}
