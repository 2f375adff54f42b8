package objects_test

import (
	"encoding/json"
	"fmt"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/postern-dev/postern/internal/objects"
)

// TestWeighManyOwners covers an object of 11 kB that needs a hundred access reviews. Requests for such objects wait, and the
// memory of hundreds of them must not be that of all others.
func TestWeighManyOwners(t *testing.T) {
	cm := &corev1.ConfigMap{}
	for i := range 100 {
		cm.OwnerReferences = append(cm.OwnerReferences, metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: fmt.Sprint("owner-", i), UID: "u", BlockOwnerDeletion: new(true)})
	}
	raw, err := json.Marshal(cm)
	if err != nil {
		t.Fatal(err)
	}
	ar := &admissionv1.AdmissionRequest{Kind: metav1.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Object: runtime.RawExtension{Raw: raw}}
	if n := objects.Weigh(ar); n < 100*96 || n > 100<<10 {
		t.Errorf("Got %d bytes for %d bytes of text", n, len(raw))
	}
}
