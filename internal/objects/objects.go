// Package objects decodes the objects of admission requests, and limits and computes the memory that they take.
package objects

import (
	"bytes"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	kjson "sigs.k8s.io/json"

	"github.com/postern-dev/postern/internal/plainjson"
	"github.com/postern-dev/postern/internal/quantities"
)

// New returns a new value for an object of the request, or nil if k8s.io/api has no type for its kind.
func New(ar *admissionv1.AdmissionRequest) runtime.Object {
	obj, err := scheme.Scheme.New(schema.GroupVersionKind(ar.Kind))
	if err != nil {
		return nil
	}
	return obj
}

// Object returns the object that the router decoded into ext, or else decodes the text of ext with Decode.
func Object(ext *runtime.RawExtension, kind metav1.GroupVersionKind) (runtime.Object, error) {
	if obj := ext.Object; obj != nil && !isOtherKind(obj, schema.GroupVersionKind(kind)) {
		return obj, nil
	}
	return Decode(ext.Raw, kind)
}

// Decode returns the object in raw, or nil if raw is empty or null. The object has the
// kind of the request, unless the object names another kind. Decode returns a
// RequestEntityTooLarge error for an object that no API server can store.
func Decode(raw []byte, kind metav1.GroupVersionKind) (runtime.Object, error) {
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	gvk := schema.GroupVersionKind(kind)
	obj, err := decodeAs(raw, gvk)
	if err != nil {
		return nil, err
	}
	if isOtherKind(obj, gvk) {
		return decodeAs(raw, obj.GetObjectKind().GroupVersionKind())
	}
	return obj, nil
}

// isOtherKind reports whether an object names a kind other than gvk.
func isOtherKind(obj runtime.Object, gvk schema.GroupVersionKind) bool {
	own := obj.GetObjectKind().GroupVersionKind()
	return own != gvk && own.Version != "" && own.Kind != ""
}

// decodeAs decodes into the type of k8s.io/api, or into an unstructured object. It
// does not use the codecs of the scheme, because they read the document twice.
func decodeAs(raw []byte, gvk schema.GroupVersionKind) (runtime.Object, error) {
	if err := bound(raw, gvk); err != nil {
		return nil, err
	}
	obj, err := scheme.Scheme.New(gvk)
	if err != nil {
		u := &unstructured.Unstructured{}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &u.Object); err != nil {
			return nil, fmt.Errorf("decoding a %s: %w", gvk.Kind, err)
		}
		return u, nil
	}
	if plainjson.Unmarshal(raw, obj) {
		return obj, nil
	}
	// API servers write quantities without escapes.
	if quantities.Contains(raw) {
		return nil, fmt.Errorf("decoding a %s %s: %w", gvk.GroupVersion(), gvk.Kind, quantities.ErrFar)
	}
	if obj, err = scheme.Scheme.New(gvk); err != nil {
		return nil, fmt.Errorf("making a %s %s: %w", gvk.GroupVersion(), gvk.Kind, err)
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, obj); err != nil {
		return nil, fmt.Errorf("decoding a %s %s: %w", gvk.GroupVersion(), gvk.Kind, err)
	}
	return obj, nil
}
