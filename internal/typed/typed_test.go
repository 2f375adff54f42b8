package typed_test

import (
	"reflect"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/postern-dev/postern/internal/typed"
)

func TestFrom(t *testing.T) {
	object := func() map[string]any {
		return map[string]any{"metadata": map[string]any{"name": "a", "managedFields": []any{map[string]any{"time": "10000-01-01T00:00:00Z"}}}}
	}
	u := &unstructured.Unstructured{Object: object()}
	var got corev1.ConfigMap
	if err := typed.From(u, &got); err != nil || got.Name != "a" || got.ManagedFields != nil {
		t.Errorf("Got %+v and the error %v", got, err)
	}
	if !reflect.DeepEqual(u.Object, object()) {
		t.Errorf("The object was changed: %v", u.Object)
	}
	for _, content := range []map[string]any{{}, {"metadata": map[string]any{"name": "a"}}} {
		if err := typed.From(&unstructured.Unstructured{Object: content}, &got); err != nil {
			t.Errorf("%v: %v", content, err)
		}
	}
	var deployment appsv1.Deployment
	err := typed.From(&unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "a"},
		"spec":     map[string]any{"replicas": int64(3), "template": map[string]any{"metadata": map[string]any{"creationTimestamp": "10000-01-01T00:00:00Z"}}},
	}}, &deployment)
	if err != nil || *deployment.Spec.Replicas != 3 || deployment.Spec.Template.CreationTimestamp.UTC().Year() != 10000 {
		t.Errorf("Got %+v and the error %v", deployment, err)
	}
	if err := typed.From(&unstructured.Unstructured{Object: map[string]any{"data": int64(1)}}, &got); err == nil {
		t.Error("Got no error for a field of another type")
	}
}
