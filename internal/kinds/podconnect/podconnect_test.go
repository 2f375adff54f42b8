package podconnect_test

import (
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/postern-dev/postern/internal/kinds/podconnect"
	"github.com/postern-dev/postern/pkg/admit"
)

func pod(privileged bool) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "app", SecurityContext: &corev1.SecurityContext{Privileged: &privileged},
		}}},
	}
}

// TestRecreatedPod replaces a pod between two requests by a pod of the same name. A cached pod would decide the second
// request.
func TestRecreatedPod(t *testing.T) {
	client := fake.NewClientset(pod(false))
	connect := podconnect.Deny(client, podconnect.Privileged)
	r := &admit.Request{AdmissionRequest: &admissionv1.AdmissionRequest{Name: "web", Namespace: "shop", Operation: admissionv1.Connect}}
	if err := connect(t.Context(), r); err != nil {
		t.Fatalf("Connecting to the pod: %v", err)
	}
	pods := client.CoreV1().Pods("shop")
	for _, privileged := range []bool{true, false, true} {
		if err := pods.Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := pods.Create(t.Context(), pod(privileged), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		client.ClearActions()
		if err := connect(t.Context(), r); admit.IsDenial(err) != privileged {
			t.Errorf("Connecting to a recreated pod, privileged %t, returned %v", privileged, err)
		}
		if got := client.Actions(); len(got) != 1 || got[0].GetVerb() != "get" {
			t.Errorf("Connecting made the calls %v, want one get", got)
		}
	}
}

// TestFirstCheckDecides tests the order of the checks.
func TestFirstCheckDecides(t *testing.T) {
	returns := func(s string) podconnect.Check { return func(*corev1.PodSpec) string { return s } }
	connect := podconnect.Deny(fake.NewClientset(pod(true)), returns(""), returns("one"), podconnect.Privileged)
	err := connect(t.Context(), &admit.Request{AdmissionRequest: &admissionv1.AdmissionRequest{
		Name: "web", Namespace: "shop", Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
	}})
	if want := `pods "web" is forbidden: cannot exec into or attach to one`; err == nil || err.Error() != want {
		t.Errorf("Got %v, want %s", err, want)
	}
}
