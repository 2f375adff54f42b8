package deletiongate

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/postern-dev/postern/internal/writes"
)

// TestAPodIsSlim covers the pods that wait for backends: their authors choose how large the rest of them is.
func TestAPodIsSlim(t *testing.T) {
	client := fake.NewClientset(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{NodeName: "node-1", Affinity: &corev1.Affinity{}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}).CoreV1()
	pod, err := get(t.Context(), client.Pods("shop"), "web", "")
	if err != nil {
		t.Fatal(err)
	}
	k := &keeper{metadata: patcher{patch: func(context.Context, string, []byte) (*metav1.PartialObjectMetadata, error) {
		part := meta.AsPartialObjectMetadata(pod.DeepCopy())
		part.Annotations, part.ManagedFields = map[string]string{"changed": "true"}, []metav1.ManagedFieldsEntry{{}}
		return part, nil
	}}}
	patched, err := k.patch(t.Context(), writes.NewLimit(1).Do, pod, entries{})
	if err != nil {
		t.Fatal(err)
	}
	for _, got := range []*corev1.Pod{pod, patched} {
		if got.Spec.Affinity != nil || got.Spec.NodeName != "node-1" || got.Labels["app"] != "web" || got.Status.Phase != corev1.PodRunning || got.ManagedFields != nil {
			t.Errorf("Got %+v", got)
		}
	}
	if patched.Annotations["changed"] != "true" {
		t.Errorf("Got the annotations %v", patched.Annotations)
	}
}
