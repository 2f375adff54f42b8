package router_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/postern-dev/postern/pkg/router"
)

// TestHalvesThatAreNotEnabledAdmit covers a rollout that enables a family. The API server calls the family as soon
// as the new replica has registered it, and the Service sends half of these calls to the old replica.
func TestHalvesThatAreNotEnabledAdmit(t *testing.T) {
	mutateOnly := service(answering(&admissionv1.AdmissionResponse{}))
	mutateOnly.Validate, mutateOnly.ValidatingConfig = nil, nil
	s := serve(t, mutateOnly, router.AdmissionService{Path: "/storage"})
	if s.admit(t, "/pods/mutate", "u-1").Allowed {
		t.Error("The half that is enabled admitted, want its AdmitFunc to decide")
	}
	for _, path := range []string{"/pods/validate", "/storage/mutate", "/storage/validate"} {
		if got := s.admit(t, path, "u-2"); !got.Allowed || got.Patch != nil {
			t.Errorf("%s: got %+v, want it admitted as it is", path, got)
		}
		if a := s.send(t, http.MethodPost, path, strings.NewReader("{}")); a.code != http.StatusBadRequest {
			t.Errorf("%s: got %d for a body that is no review, want 400", path, a.code)
		}
	}
	if a := s.send(t, http.MethodPost, "/nodes/mutate", bytes.NewReader(review(t, "u-3"))); a.code != http.StatusNotFound {
		t.Errorf("Got %d from a service that is not compiled in, want 404", a.code)
	}
}
