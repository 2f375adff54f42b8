package router_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/postern-dev/postern/pkg/router"
)

// server serves a router over TLS, with HTTP/2 and HTTP/1.1.
type server struct {
	*httptest.Server

	registry metrics.KubeRegistry
	log      *logBuffer
}

// logBuffer is a buffer that is safe for concurrent use.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func serve(t *testing.T, services ...router.AdmissionService) *server {
	t.Helper()
	return serveLimited(t, router.Limits{}, services...)
}

func serveLimited(t *testing.T, limits router.Limits, services ...router.AdmissionService) *server {
	t.Helper()
	s := &server{registry: metrics.NewKubeRegistry(), log: &logBuffer{}}
	r, err := router.New(services, router.NewMetrics(s.registry), router.WithLimits(limits), router.WithNamespace("postern-system"))
	if err != nil {
		t.Fatalf("Making the router: %v", err)
	}
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(s.log)))
	s.Server = httptest.NewUnstartedServer(r)
	s.Config.BaseContext = func(net.Listener) context.Context { return klog.NewContext(t.Context(), logger) }
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// service returns a service at /pods with both halves.
func service(f router.AdmitFunc) router.AdmissionService {
	return router.AdmissionService{
		Path: "/pods", Mutate: f, Validate: f,
		MutatingConfig:   &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "postern-pods"}},
		ValidatingConfig: &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "postern-pods"}},
	}
}

func allow(context.Context, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Allowed: true}
}

// answering returns an AdmitFunc that always returns resp.
func answering(resp *admissionv1.AdmissionResponse) router.AdmitFunc {
	return func(context.Context, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse { return resp }
}

// review returns a review with the uid, for a pod.
func review(tb testing.TB, uid string) []byte {
	tb.Helper()
	return encode(tb, &admissionv1.AdmissionRequest{
		UID: types.UID(uid), Operation: admissionv1.Create, Name: "web", Namespace: "ns",
		Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"}, Object: runtime.RawExtension{Raw: []byte(`{"spec":{}}`)},
	})
}

// encode returns a review that contains the request.
func encode(tb testing.TB, ar *admissionv1.AdmissionRequest) []byte {
	tb.Helper()
	body, err := json.Marshal(admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: ar})
	if err != nil {
		tb.Fatal(err)
	}
	return body
}

// answer is the answer to an HTTP request.
type answer struct {
	code   int
	header http.Header
	body   string
	proto  string
}

// send sends a request with the content type of a review.
func (s *server) send(t *testing.T, method, path string, body io.Reader) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	return s.do(t, req)
}

func (s *server) do(t *testing.T, req *http.Request) answer {
	t.Helper()
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatalf("Sending a request: %v", err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("Reading an answer: %v", err)
	}
	return answer{resp.StatusCode, resp.Header, string(data), resp.Proto}
}

// admit sends a review and returns its response. The response must be valid.
func (s *server) admit(t *testing.T, path, uid string) *admissionv1.AdmissionResponse {
	t.Helper()
	a := s.send(t, http.MethodPost, path, bytes.NewReader(review(t, uid)))
	if a.code != http.StatusOK {
		t.Fatalf("Got %d %s, want 200", a.code, a.body)
	}
	return response(t, a, uid)
}

// response checks an answer with status 200, and returns the response in it.
func response(tb testing.TB, a answer, uid string) *admissionv1.AdmissionResponse {
	tb.Helper()
	var got admissionv1.AdmissionReview
	if err := json.Unmarshal([]byte(a.body), &got); err != nil {
		tb.Fatalf("Decoding the answer: %v\n%s", err, a.body)
	}
	if got.APIVersion != "admission.k8s.io/v1" || got.Kind != "AdmissionReview" || got.Request != nil || got.Response == nil {
		tb.Fatalf("Got %s, want an AdmissionReview with a response and no request", a.body)
	}
	if string(got.Response.UID) != uid {
		tb.Fatalf("Got the uid %q, want %q", got.Response.UID, uid)
	}
	if ct := a.header.Get("Content-Type"); ct != "application/json" {
		tb.Fatalf("Got the content type %q, want exactly application/json", ct)
	}
	if (got.Response.Patch == nil) != (got.Response.PatchType == nil) {
		tb.Fatalf("Got the patch %s of type %v, want both or none", got.Response.Patch, got.Response.PatchType)
	}
	return got.Response
}

func config(name string) *admissionregistrationv1.MutatingWebhookConfiguration {
	return &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func emptyWebhook() admissionregistrationv1.ValidatingWebhook {
	return admissionregistrationv1.ValidatingWebhook{}
}
