package admit

import (
	"bytes"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	kjson "sigs.k8s.io/json"
)

// decode returns the object in raw, or nil where there is none. It is of the kind
// that the request names, unless the object itself says another.
func decode(raw []byte, kind metav1.GroupVersionKind) (runtime.Object, error) {
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	gvk := schema.GroupVersionKind(kind)
	obj, err := decodeAs(raw, gvk)
	if err != nil {
		return nil, err
	}
	if own := obj.GetObjectKind().GroupVersionKind(); own != gvk && own.Version != "" && own.Kind != "" {
		return decodeAs(raw, own)
	}
	return obj, nil
}

// decodeAs decodes into the type of k8s.io/api, or as unstructured. It goes
// around the scheme's codecs, which look for the kind first and so read
// everything twice.
func decodeAs(raw []byte, gvk schema.GroupVersionKind) (runtime.Object, error) {
	obj, err := scheme.Scheme.New(gvk)
	if err != nil {
		u := &unstructured.Unstructured{}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &u.Object); err != nil {
			return nil, fmt.Errorf("decoding a %s: %w", gvk.Kind, err)
		}
		return u, nil
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, obj); err != nil {
		return nil, fmt.Errorf("decoding a %s %s: %w", gvk.GroupVersion(), gvk.Kind, err)
	}
	return obj, nil
}
