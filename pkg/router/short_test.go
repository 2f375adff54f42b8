package router_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics"

	"github.com/postern-dev/postern/pkg/router"
)

// TestAShortRequestFailsClosed has a user choose a time (?timeout=) in which no plugin decides. The failure policy may be Ignore,
// so an HTTP error would admit the request.
func TestAShortRequestFailsClosed(t *testing.T) {
	stuck := func(ctx context.Context, _ *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		<-ctx.Done()
		return nil
	}
	broken := answering(&admissionv1.AdmissionResponse{Result: &metav1.Status{Code: http.StatusInternalServerError, Message: "no lookup"}})
	denied := answering(&admissionv1.AdmissionResponse{Result: &metav1.Status{Code: http.StatusForbidden, Message: "no"}})
	for name, tc := range map[string]struct {
		decide     router.AdmitFunc
		registered time.Duration
		own        *int32 // the time-out of the service
		http, code int
		short      float64
	}{
		"too late":                      {stuck, 10 * time.Second, nil, 200, 504, 1},
		"a failure":                     {broken, 10 * time.Second, nil, 200, 504, 1},
		"a panic":                       {func(context.Context, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse { panic("x") }, 10 * time.Second, nil, 200, 500, 1},
		"a decision":                    {allow, 10 * time.Second, nil, 200, 0, 1},
		"a denial":                      {denied, 10 * time.Second, nil, 200, 403, 1},
		"all of the registered time":    {broken, time.Second, nil, 500, 0, 0},
		"more than the registered time": {broken, 500 * time.Millisecond, nil, 500, 0, 0},
		"a time-out of the service":     {broken, 10 * time.Second, new(int32(1)), 500, 0, 0},
		"an unknown time":               {broken, 0, nil, 500, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &server{registry: metrics.NewKubeRegistry()}
			pods := service(tc.decide)
			pods.ValidatingConfig.Webhooks = append(pods.ValidatingConfig.Webhooks, emptyWebhook())
			pods.ValidatingConfig.Webhooks[0].Name, pods.ValidatingConfig.Webhooks[0].TimeoutSeconds = "pods.postern.dev", tc.own
			r, err := router.New([]router.AdmissionService{pods}, router.NewMetrics(s.registry), router.WithTimeout(tc.registered))
			if err != nil {
				t.Fatal(err)
			}
			s.Server = httptest.NewServer(r)
			defer s.Close()
			a := s.send(t, http.MethodPost, "/pods/validate?timeout=1s", bytes.NewReader(review(t, "u")))
			if a.code != tc.http {
				t.Fatalf("Got %d %s, want %d", a.code, a.body, tc.http)
			}
			if tc.http == http.StatusOK {
				got := response(t, a, "u")
				if got.Allowed != (tc.code == 0) || tc.code != 0 && int(got.Result.Code) != tc.code {
					t.Errorf("Got %+v, want the code %d", got, tc.code)
				}
				if tc.code == http.StatusGatewayTimeout && !strings.Contains(got.Result.Message, "it has 1s instead of 10s") {
					t.Errorf("Got %q, want both times in it", got.Result.Message)
				}
			}
			if got := s.counts(t)["postern_webhook_short_requests_total validate /pods"]; got != tc.short {
				t.Errorf("Got %v short requests, want %v", got, tc.short)
			}
		})
	}
}

// TestBodyThatAUserDelays covers bodies that stop after the uid. A user chooses the size of a body, and its time.
func TestBodyThatAUserDelays(t *testing.T) {
	const head = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","object":{`
	for name, tc := range map[string]struct {
		length     int64
		registered time.Duration
		http       int
		code       int32
	}{
		"with the registered time":       {1000, 200 * time.Millisecond, http.StatusServiceUnavailable, 0},
		"with less time":                 {1000, 10 * time.Second, http.StatusOK, http.StatusGatewayTimeout},
		"large, with the registered one": {2 << 20, 200 * time.Millisecond, http.StatusOK, http.StatusServiceUnavailable},
		"large, with less time":          {2 << 20, 10 * time.Second, http.StatusOK, http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &server{registry: metrics.NewKubeRegistry()}
			handler, err := router.New([]router.AdmissionService{service(allow)}, router.NewMetrics(s.registry), router.WithTimeout(tc.registered))
			if err != nil {
				t.Fatal(err)
			}
			s.Server = httptest.NewServer(handler)
			defer s.Close()
			r, w := io.Pipe()
			defer w.Close()
			go func() { _, _ = io.WriteString(w, head) }()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/pods/validate?timeout=200ms", r)
			if err != nil {
				t.Fatal(err)
			}
			req.ContentLength = tc.length
			req.Header.Set("Content-Type", "application/json")
			a := s.do(t, req)
			if a.code != tc.http {
				t.Fatalf("Got %d %s, want %d", a.code, a.body, tc.http)
			}
			if a.code == http.StatusOK {
				if got := response(t, a, "u"); got.Allowed || got.Result.Code != tc.code {
					t.Errorf("Got %s, want a denial with the code %d", a.body, tc.code)
				}
			}
			if got := s.counts(t)["postern_webhook_rejected_bodies_total validate slow /pods"]; got != 1 {
				t.Errorf("Got %v slow bodies counted, want 1", got)
			}
		})
	}
}
