package router_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/postern-dev/postern/pkg/router"
)

const segmentReview = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u"}}`

// TestStrangersAreNotServed covers callers that do not know the registered path.
func TestStrangersAreNotServed(t *testing.T) {
	segments := []string{"2f3f3ed3dcf3a9bbe3a8b4d0d6e1a3c7", "9c1185a5c5e9fc54612808977ee8f548"}
	service := service(nil)
	asked := 0
	service.Mutate = func(context.Context, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		asked++
		return &admissionv1.AdmissionResponse{Allowed: true}
	}
	service.Validate = service.Mutate
	r, err := router.New([]router.AdmissionService{service}, nil, router.WithSegments(func() []string { return segments }))
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log), textlogger.Verbosity(10)))
	send := func(path, body string) (int, string) {
		req := httptest.NewRequestWithContext(klog.NewContext(t.Context(), logger), http.MethodPost, "https://host"+path, strings.NewReader(body))
		req.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		r.ServeHTTP(w, req)
		return w.Code, w.Body.String()
	}
	first, second := "/"+segments[0], "/"+segments[1]
	for _, path := range []string{
		"/pods/mutate", "/", "//pods/mutate", "/77d1c0d44b1c4b1f8f2f4f8e5e9a0d3c/pods/mutate", first, first + "/pods", first + "//pods/mutate",
		first[:len(first)-1] + "/pods/mutate", first + first + "/pods/mutate", "/" + first + "/pods/mutate", first + "/nodes/mutate",
	} {
		code, body := send(path, segmentReview)
		if code != http.StatusNotFound || strings.Contains(body, first[1:]) {
			t.Errorf("%s: got %d %q, want 404 and no segment", path, code, body)
		}
	}
	if asked != 0 {
		t.Errorf("A stranger's review was decided %d times", asked)
	}
	for _, path := range []string{first + "/pods/mutate", second + "/pods/mutate?timeout=5s", first + "/pods/validate"} {
		if code, body := send(path, segmentReview); code != http.StatusOK {
			t.Errorf("Got %d %q at a registered path, want 200", code, body)
		}
		if code, body := send(path, "garbage"); code != http.StatusBadRequest || strings.Contains(body, path[1:30]) {
			t.Errorf("Got %d %q of garbage, want 400 and no segment", code, body)
		}
	}
	service.Mutate = func(context.Context, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse { panic("x") }
	if r, err = router.New([]router.AdmissionService{service}, nil, router.WithSegments(func() []string { return segments })); err != nil {
		t.Fatal(err)
	}
	if code, body := send(first+"/pods/mutate", segmentReview); code != http.StatusOK || !strings.Contains(body, `"code":500`) || strings.Contains(body, first[1:]) {
		t.Errorf("Got %d %q of a panic, want a denial and no segment", code, body)
	}
	if log.Len() == 0 || strings.Contains(log.String(), first[1:]) || strings.Contains(log.String(), second[1:]) {
		t.Errorf("Got the log %s, want one without a segment", log.String())
	}
}

// TestPathsWithoutASegment covers replicas to which an API server sends requests by paths with and without a segment.
func TestPathsWithoutASegment(t *testing.T) {
	const secret = "2f3f3ed3dcf3a9bbe3a8b4d0d6e1a3c7"
	r, err := router.New([]router.AdmissionService{service(allow)}, nil, router.WithSegments(func() []string { return []string{"", secret} }))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{
		"/pods/mutate": true, "/" + secret + "/pods/mutate": true, "//pods/mutate": false, "pods/mutate": false, secret + "/pods/mutate": false,
		"/77d1c0d44b1c4b1f8f2f4f8e5e9a0d3c/pods/mutate": false, "/" + secret: false, "/": false, "": false,
	} {
		if got := r.Serves(path); got != want {
			t.Errorf("%q: got %v, want %v", path, got, want)
		}
	}
}
