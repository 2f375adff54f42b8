package router_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	kjson "sigs.k8s.io/json"

	"github.com/postern-dev/postern/pkg/router"
)

// FuzzDecodeReview sends any body. The answer is a review with the uid of the request, or a denial if only the uid can be
// read, or a plain-text error with a 4xx code.
func FuzzDecodeReview(f *testing.F) {
	f.Add(review(f, "u-1"))
	for _, seed := range []string{
		"", "null", "[]", "{}", `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`,
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"a","uid":"b"}}`,
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"\ud800","object":null,"oldObject":[1e400]}}`,
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{},"response":{"uid":"x","patch":"!"}}`,
		`{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{"uid":"a","userInfo":{"extra":{"k":["v"]}}}}`,
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"dryRun":true,"options":{"kind":"CreateOptions"},"requestKind":null}}{}`,
	} {
		f.Add([]byte(seed))
	}
	r, err := router.New([]router.AdmissionService{service(allow)}, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/pods/mutate", bytes.NewReader(body))
		req.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		r.ServeHTTP(w, req)
		var sent struct {
			Request *struct {
				UID any `json:"uid"`
			} `json:"request"`
		}
		notJSON := kjson.UnmarshalCaseSensitivePreserveInts(body, &sent)
		switch w.Code {
		case http.StatusOK:
			var got admissionv1.AdmissionReview
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatalf("Got %s: %v", w.Body, err)
			}
			if notJSON != nil || sent.Request == nil {
				if got.Response == nil || got.Response.Allowed || got.Response.UID == "" {
					t.Fatalf("Got %s for a body without a request (%v), want a denial", w.Body, notJSON)
				}
				break
			}
			// Of two uids, a denial may have the first one.
			if uid, known := sent.Request.UID.(string); known && bytes.Count(body, []byte(`uid"`)) < 2 {
				response(t, answer{w.Code, w.Header(), w.Body.String(), ""}, uid)
			}
		case http.StatusBadRequest:
			if strings.TrimSpace(w.Body.String()) == "" || strings.Contains(w.Header().Get("Content-Type"), "json") {
				t.Fatalf("Got %q as %s, want the reason in plain text", w.Body, w.Header().Get("Content-Type"))
			}
		default:
			t.Fatalf("Got %d %s, want 200 or 400", w.Code, w.Body)
		}
	})
}
