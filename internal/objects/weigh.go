package objects

import (
	"bytes"
	"fmt"
	"reflect"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/postern-dev/postern/internal/footprint"
)

const (
	// smallFootprint is the footprint up to which it is not worth measuring. Such a
	// text is taken to have placeBytes for each value, which is more than an item of
	// any list of k8s.io/api has, or an entry of a map of quantities.
	smallFootprint = 1 << 20
	placeBytes     = 640

	// decodedShare and copiedShare are how much memory an object takes for each byte
	// of its footprint, in quarters: the decoder leaves up to half as much capacity
	// again in lists, and a copy, by which changes are found, has none to spare. See
	// TestWeight.
	decodedShare = 6
	copiedShare  = 4
	wholeShare   = 4
)

// Weigh returns the number of bytes of memory that deciding a request takes. An object
// that is too large to be decoded takes none.
func Weigh(ar *admissionv1.AdmissionRequest) int64 {
	gvk := schema.GroupVersionKind(ar.Kind)
	return (weight(ar.Object.Raw, gvk)*(decodedShare+copiedShare) + weight(ar.OldObject.Raw, gvk)*decodedShare) / wholeShare
}

// Bound returns a bound on Weigh for the request in the text of a review, which takes next to no time.
func Bound(review []byte) int64 {
	return most(review) * (decodedShare + copiedShare) / wholeShare
}

func weight(raw []byte, gvk schema.GroupVersionKind) int64 {
	if n := most(raw); n <= smallFootprint {
		return n
	}
	t := typeOf(gvk)
	n := footprint.Of(raw, t)
	if n > footprint.Limit(t) {
		return 0
	}
	return n
}

// most returns a bound on the footprint of a text that takes next to no time.
func most(raw []byte) int64 {
	places := bytes.Count(raw, []byte{'{'}) + bytes.Count(raw, []byte{'['}) + bytes.Count(raw, []byte{','})
	return int64(places)*placeBytes + int64(len(raw))
}

// bound returns a RequestEntityTooLarge error for an object that takes more memory than
// any object that an API server can store. A type makes hundreds of bytes of the three
// bytes of {} and a comma, so a few megabytes of text could take all memory.
func bound(raw []byte, gvk schema.GroupVersionKind) error {
	t := typeOf(gvk)
	limit := footprint.Limit(t)
	if most(raw) <= limit {
		return nil
	}
	if n := footprint.Of(raw, t); n > limit {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
			"a %s of %d bytes would take %d MiB of memory, and none that can be stored takes more than %d MiB", gvk.Kind, len(raw), n>>20, limit>>20))
	}
	return nil
}

// typeOf returns the type that a kind is decoded into, or nil.
func typeOf(gvk schema.GroupVersionKind) reflect.Type {
	return scheme.Scheme.AllKnownTypes()[gvk]
}
