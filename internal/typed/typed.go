// Package typed converts objects of informers and of dynamic clients into their types.
package typed

import (
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// From converts an object into its type, without its managed fields. No plugin reads these, and users write times into them
// that the type cannot hold, such as one after the year 9999: an API server does not parse what they write there.
func From(u *unstructured.Unstructured, to any) error {
	content := u.Object
	if metadata, ok := content["metadata"].(map[string]any); ok && metadata["managedFields"] != nil {
		content, metadata = maps.Clone(content), maps.Clone(metadata)
		delete(metadata, "managedFields")
		content["metadata"] = metadata
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(content, to)
}
