package costcenter_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"example.com/custom/costcenter"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/router"
)

func TestCostCenter(t *testing.T) {
	service, err := costcenter.Service(admit.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := router.New([]router.AdmissionService{service}, nil)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewTLSServer(r)
	t.Cleanup(srv.Close)
	for object, want := range map[string]metav1.Status{
		`{"metadata":{"name":"s"},"spec":{"type":"LoadBalancer"}}`:                               {Code: 403, Message: "a load balancer needs the label cost-center"},
		`{"metadata":{"name":"s","labels":{"cost-center":"42"}},"spec":{"type":"LoadBalancer"}}`: {},
		`{"metadata":{"name":"s"},"spec":{"type":"ClusterIP"}}`:                                  {},
		`{"metadata":{"name":"s"},"spec":{"type":["LoadBalancer"]}}`: {
			Code: 400, Reason: metav1.StatusReasonBadRequest, Message: "json: cannot unmarshal array into Go struct field ServiceSpec.spec.type of type v1.ServiceType",
		},
	} {
		review := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u1","operation":"CREATE",` +
			`"resource":{"version":"v1","resource":"services"},"kind":{"version":"v1","kind":"Service"},"object":` + object + `}}`
		resp := send(t, srv, review)
		if allowed := want.Code == 0; resp.Allowed != allowed || resp.UID != "u1" {
			t.Errorf("%s: got allowed %v for UID %q, want %v for u1", object, resp.Allowed, resp.UID, allowed)
		}
		if got := resp.Result; !resp.Allowed && (got.Code != want.Code || got.Reason != want.Reason || got.Message != want.Message) {
			t.Errorf("%s: got %+v, want %+v", object, got, want)
		}
	}
}

func send(t *testing.T, srv *httptest.Server, review string) *admissionv1.AdmissionResponse {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/cost-center/validate", strings.NewReader(review))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	answer, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	var got admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &got); err != nil || got.Response == nil {
		t.Fatalf("Got status %d and %s, want an AdmissionReview with a response (%v)", answer.StatusCode, body, err)
	}
	return got.Response
}
