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
	// value, which is more than an item of any list of k8s.io/api takes, or an entry of a map of quantities. For an object with
	// 100 owners it is thirty times too much, so with larger estimates two hundred requests that wait would hold all memory.
	smallFootprint = 64 << 10
	placeBytes     = 640
)

// Weigh returns the memory that deciding a request takes, in bytes. It returns 0 for an object that is too large to be
// decoded.
func Weigh(ar *admissionv1.AdmissionRequest) int64 {
	gvk := schema.GroupVersionKind(ar.Kind)
	return withCopy(weight(ar.Object.Raw, gvk)) + footprint.WithSpare(weight(ar.OldObject.Raw, gvk))
}

// CopyMemory returns the memory that one more copy of the object of a request takes, in bytes. It returns 0 for a small object, for
// which Weigh is much too large.
func CopyMemory(ar *admissionv1.AdmissionRequest) int64 {
	if most(ar.Object.Raw) <= smallFootprint {
		return 0
	}
	return footprint.Of(ar.Object.Raw, typeOf(schema.GroupVersionKind(ar.Kind)))
}

// Bound returns an upper limit of Weigh, in bytes, without decoding the review.
func Bound(review []byte) int64 {
	return withCopy(most(review))
}

// withCopy returns the memory of an object with a footprint of n bytes and of its copy, which is compared with the changed
// object. A copy has no spare capacity. See TestWeight.
func withCopy(n int64) int64 { return footprint.WithSpare(n) + n }

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
