package signers_test

import (
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/postern-dev/postern/internal/kinds/signers"
	"github.com/postern-dev/postern/pkg/admit"
)

func TestWrongType(t *testing.T) {
	for want, got := range map[string]runtime.Object{
		"<nil>":              nil,
		"*core.Pod":          &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}},
		"*certificates.List": &certificatesv1.CertificateSigningRequestList{TypeMeta: metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "List"}},
	} {
		r := &admit.Request{AdmissionRequest: &admissionv1.AdmissionRequest{Name: "x", Resource: metav1.GroupVersionResource{Resource: "things"}}}
		err := signers.WrongType(r, "Thing", got)
		if want := `things "x" is forbidden: expected type Thing, got: ` + want; !apierrors.IsForbidden(err) || err.Error() != want {
			t.Errorf("Got %v, want %q", err, want)
		}
	}
}
