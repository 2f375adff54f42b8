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
	// smallFootprint is the footprint in bytes below which an estimate suffices. The estimate is placeBytes for each
	// value, which is more than an item of any list of k8s.io/api takes, or an entry of a map of quantities.
	smallFootprint = 1 << 20
	placeBytes     = 640

	// decodedShare and copiedShare are the memory that an object takes for each byte of its footprint, in quarters of a
	// byte. The decoder leaves up to half as much spare capacity in lists. A copy, which is compared with the changed
	// object, has no spare capacity. See TestWeight.
	decodedShare = 6
	copiedShare  = 4
	wholeShare   = 4
)

// Weigh returns the memory that deciding a request takes, in bytes. It returns 0 for an object that is too large to be
// decoded.
func Weigh(ar *admissionv1.AdmissionRequest) int64 {
	gvk := schema.GroupVersionKind(ar.Kind)
	return (weight(ar.Object.Raw, gvk)*(decodedShare+copiedShare) + weight(ar.OldObject.Raw, gvk)*decodedShare) / wholeShare
}

// Bound returns an upper limit of Weigh, in bytes, without decoding the review.
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

// most returns an upper limit of the footprint of a text, in bytes. It only counts braces, brackets and commas.
func most(raw []byte) int64 {
	places := bytes.Count(raw, []byte{'{'}) + bytes.Count(raw, []byte{'['}) + bytes.Count(raw, []byte{','})
	return int64(places)*placeBytes + int64(len(raw))
}

// bound returns a RequestEntityTooLarge error for an object that takes more memory than any object that an API server
// can store. Three bytes of text, such as {} and a comma, can become hundreds of bytes of memory, so a few megabytes of
// text could take all memory.
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

// typeOf returns the Go type of a kind, or nil for a kind that is not in k8s.io/api.
func typeOf(gvk schema.GroupVersionKind) reflect.Type {
	return scheme.Scheme.AllKnownTypes()[gvk]
}
