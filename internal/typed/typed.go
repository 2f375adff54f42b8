// Package typed converts objects of informers and of dynamic clients into their types.
package typed

import (
	"encoding/json"
	"maps"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/postern-dev/postern/internal/plainjson"
)

// From converts an object into its type, without its managed fields, which no plugin reads. to is a pointer to a zero value.
//
// Users write times that the type cannot hold, such as one after the year 9999, where API servers do not validate them: in
// managed fields and in the metadata of templates. From reads them as a request is read.
func From(u *unstructured.Unstructured, to any) error {
	content := u.Object
	if metadata, ok := content["metadata"].(map[string]any); ok && metadata["managedFields"] != nil {
		content, metadata = maps.Clone(content), maps.Clone(metadata)
		delete(metadata, "managedFields")
		content["metadata"] = metadata
	}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, to)
	if err == nil {
		return nil
	}
	text, failed := json.Marshal(content)
	if failed != nil {
		return err
	}
	reflect.ValueOf(to).Elem().SetZero()
	if !plainjson.Unmarshal(text, to) {
		return err
	}
	return nil
}
