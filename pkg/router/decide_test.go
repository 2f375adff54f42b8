package router_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/pkg/router"
)

func TestResponses(t *testing.T) {
	jsonPatch, otherType := admissionv1.PatchTypeJSONPatch, admissionv1.PatchType("Merge")
	patch := []byte(`[{"op":"remove","path":"/spec"}]`)
	denied := &metav1.Status{Status: "Failure", Code: 403, Reason: "Forbidden", Message: "no", Details: &metav1.StatusDetails{Name: "web", Kind: "pods"}}
	for _, c := range []struct {
		name      string
		resp      *admissionv1.AdmissionResponse
		code      int
		want      *admissionv1.AdmissionResponse // Without the uid.
		validates bool
	}{
		{"allowed", &admissionv1.AdmissionResponse{Allowed: true}, 200, &admissionv1.AdmissionResponse{Allowed: true}, false},
		{"another request's uid", &admissionv1.AdmissionResponse{UID: "other", Allowed: true}, 200, &admissionv1.AdmissionResponse{Allowed: true}, true},
		{"denied", &admissionv1.AdmissionResponse{Result: denied}, 200, &admissionv1.AdmissionResponse{Result: denied}, true},
		{"denied without a result", &admissionv1.AdmissionResponse{}, 200, &admissionv1.AdmissionResponse{}, true},
		{"denied with a patch", &admissionv1.AdmissionResponse{Result: denied, Patch: patch, PatchType: &jsonPatch}, 200, &admissionv1.AdmissionResponse{Result: denied}, false},
		{"denied with a patch while validating", &admissionv1.AdmissionResponse{Result: denied, Patch: patch}, 200, &admissionv1.AdmissionResponse{Result: denied}, true},
		{"allowed with a code", &admissionv1.AdmissionResponse{Allowed: true, Result: &metav1.Status{Code: 500}}, 200, &admissionv1.AdmissionResponse{Allowed: true, Result: &metav1.Status{Code: 500}}, true},
		{"patched", &admissionv1.AdmissionResponse{Allowed: true, Patch: patch}, 200, &admissionv1.AdmissionResponse{Allowed: true, Patch: patch, PatchType: &jsonPatch}, false},
		{"patched with another type", &admissionv1.AdmissionResponse{Allowed: true, Patch: patch, PatchType: &otherType}, 200, &admissionv1.AdmissionResponse{Allowed: true, Patch: patch, PatchType: &jsonPatch}, false},
		{"patched by null", &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte("null"), PatchType: &jsonPatch}, 200, &admissionv1.AdmissionResponse{Allowed: true}, false},
		{"patched by nothing", &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(" [] \n"), PatchType: &jsonPatch}, 200, &admissionv1.AdmissionResponse{Allowed: true}, true},
		{"patched by an empty patch", &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte{}, PatchType: &jsonPatch}, 200, &admissionv1.AdmissionResponse{Allowed: true}, true},
		{"patched while validating", &admissionv1.AdmissionResponse{Allowed: true, Patch: patch}, 500, nil, true},
		{"annotated", &admissionv1.AdmissionResponse{Allowed: true, AuditAnnotations: map[string]string{"k": "v"}}, 200, &admissionv1.AdmissionResponse{Allowed: true, AuditAnnotations: map[string]string{"k": "v"}}, true},
		{"no response", nil, 500, nil, false},
		{"could not decide", &admissionv1.AdmissionResponse{Result: &metav1.Status{Code: 500, Message: "broken"}}, 500, nil, false},
		{"could not decide in time", &admissionv1.AdmissionResponse{Result: &metav1.Status{Code: 504, Message: "late"}}, 504, nil, true},
		{"a code that is none", &admissionv1.AdmissionResponse{Result: &metav1.Status{Code: 1000000, Message: "odd"}}, 500, nil, false},
		{"a negative code", &admissionv1.AdmissionResponse{Result: &metav1.Status{Code: -1, Message: "odd"}}, 200, &admissionv1.AdmissionResponse{Result: &metav1.Status{Code: -1, Message: "odd"}}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, path := serve(t, service(answering(c.resp))), "/pods/mutate"
			if c.validates {
				path = "/pods/validate"
			}
			a := s.send(t, http.MethodPost, path, bytes.NewReader(review(t, "u-1")))
			if a.code != c.code {
				t.Fatalf("Got %d %s, want %d", a.code, a.body, c.code)
			}
			if c.want == nil {
				if strings.Contains(a.body, "AdmissionReview") || (c.resp != nil && c.resp.Result != nil && strings.TrimSpace(a.body) != c.resp.Result.Message) {
					t.Errorf("Got the body %s, want the reason in plain text", a.body)
				}
				return
			}
			got := response(t, a, "u-1")
			got.UID = ""
			if diff := cmp.Diff(got, c.want); diff != "" {
				t.Errorf("Got another response (-got +want):\n%s", diff)
			}
		})
	}
}

func TestWarningsAreFitForHeaders(t *testing.T) {
	warnings := []string{"plain", "two\nlines", "\r\n", "  ", "tab\there", "bell\a and \x1b[31mred\x7f", "not \xff UTF-8", " ☃ "}
	want := []string{"plain", "two", "lines", "tab here", "bell and [31mred", "not  UTF-8", "☃"}
	for _, allowed := range []bool{true, false} {
		s := serve(t, service(answering(&admissionv1.AdmissionResponse{Allowed: allowed, Warnings: warnings})))
		if diff := cmp.Diff(s.admit(t, "/pods/mutate", "u-1").Warnings, want); diff != "" {
			t.Errorf("Allowed %v: got other warnings (-got +want):\n%s", allowed, diff)
		}
	}
}

// TestPanicIsADenial has a service that panics. Whoever finds an object that leads to a panic must not choose the failure policy
// with it. In kube-apiserver a panic of a plugin ends the request, too.
func TestPanicIsADenial(t *testing.T) {
	calls := 0
	s := serve(t, service(func(context.Context, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		if calls++; calls == 1 {
			panic("on purpose")
		}
		return &admissionv1.AdmissionResponse{Allowed: true}
	}))
	a := s.send(t, http.MethodPost, "/pods/mutate", bytes.NewReader(review(t, "u-1")))
	if got := response(t, a, "u-1"); got.Allowed || got.Result.Code != http.StatusInternalServerError || got.Result.Message != "the admission service panicked, see its log" {
		t.Errorf("Got %s, want a denial without the stack", a.body)
	}
	for _, want := range []string{"Admission service panicked", "panic: on purpose", "decide_test.go", `uid="u-1"`} {
		if !strings.Contains(s.log.String(), want) {
			t.Errorf("The log has no %q:\n%s", want, s.log)
		}
	}
	s.admit(t, "/pods/mutate", "u-2")
	if got := s.counts(t)["postern_webhook_panics_total mutate /pods"]; got != 1 {
		t.Errorf("Got %v panics counted, want 1", got)
	}
}

// TestLogOfNames has a name that the API server has not checked yet. A user must not write other values into a line of the log.
func TestLogOfNames(t *testing.T) {
	s := serve(t, service(func(ctx context.Context, _ *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		klog.FromContext(ctx).Info("Looked")
		return &admissionv1.AdmissionResponse{Allowed: true}
	}))
	for name, tc := range map[string]struct{ namespace, name, want string }{
		"plain":                {"shop", "web", `object="shop/web"`},
		"without a namespace":  {"", "node", `object="node"`},
		"without a name":       {"shop", "", `object="shop/"`},
		"with quotation marks": {"shop", "x\" plugin=\"X\"\nI0101 forged", `object="shop/x\" plugin=\"X\" I0101 forged"`},
		"long":                 {"shop", strings.Repeat("x", 1<<20), `object="shop/` + strings.Repeat("x", 253) + ` ..."`},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(s.log.String())
			a := s.send(t, http.MethodPost, "/pods/mutate", bytes.NewReader(encode(t, &admissionv1.AdmissionRequest{UID: "u-1", Namespace: tc.namespace, Name: tc.name})))
			if !response(t, a, "u-1").Allowed {
				t.Errorf("Got %s", a.body)
			}
			if got := s.log.String()[before:]; !strings.Contains(got, `"Looked" `) || !strings.HasSuffix(strings.TrimSpace(got), " "+tc.want) {
				t.Errorf("Got the log %q, want %s at its end", got, tc.want)
			}
		})
	}
}

// TestServiceThatEndsItsGoroutine has a service that returns nothing. The request is answered, and what it held is given back.
func TestServiceThatEndsItsGoroutine(t *testing.T) {
	s := serveLimited(t, router.Limits{Requests: 4, Bytes: 64 << 20}, service(func(context.Context, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		goruntime.Goexit()
		return nil
	}))
	for range 8 {
		a := s.send(t, http.MethodPost, "/pods/mutate", bytes.NewReader(review(t, "u-1")))
		if a.code != http.StatusInternalServerError || !strings.Contains(a.body, "returned no response") {
			t.Fatalf("Got %d %s, want 500", a.code, a.body)
		}
	}
	await(t, func() bool { n, held := inFlight(t, s); return n == 0 && held == 0 })
}

// TestPanicBeforeTheService has funcs that panic before the service is called. The memory and the slot of the request must be
// given back: the API server is one source, and would be answered 429 until a restart.
func TestPanicBeforeTheService(t *testing.T) {
	panics := true
	for name, objects := range map[string]router.Objects{
		"bound": {Bound: func([]byte) int64 { mayPanic(panics); return 0 }},
		"weigh": {Weigh: func(*admissionv1.AdmissionRequest) int64 { mayPanic(panics); return 0 }},
		"new": {Bound: func([]byte) int64 { return 1 }, New: func(*admissionv1.AdmissionRequest) runtime.Object {
			mayPanic(panics)
			return nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			svc := service(allow)
			svc.Objects = objects
			s := serveLimited(t, router.Limits{Bytes: 64 << 20, Requests: 4}, svc)
			panics = true
			for range 20 {
				a := s.send(t, http.MethodPost, "/pods/mutate", bytes.NewReader(review(t, "u-1")))
				if got := response(t, a, "u-1"); got.Allowed || got.Result.Code != http.StatusInternalServerError {
					t.Fatalf("Got %s, want a denial", a.body)
				}
			}
			panics = false
			s.admit(t, "/pods/mutate", "u-2")
			await(t, func() bool { n, held := inFlight(t, s); return n == 0 && held == 0 })
			if got := s.counts(t)["postern_webhook_panics_total mutate /pods"]; got != 20 {
				t.Errorf("Got %v panics counted, want 20", got)
			}
		})
	}
}

func mayPanic(now bool) {
	if now {
		panic("on purpose")
	}
}

// TestDeadlineOfAFuncThatIgnoresIt calls a func that never returns. The router must answer the request, and must
// not delay other requests.
func TestDeadlineOfAFuncThatIgnoresIt(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	s := serve(t, service(func(_ context.Context, ar *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		if ar.UID == "stuck" {
			<-release
		}
		return &admissionv1.AdmissionResponse{Allowed: true}
	}))
	a := s.send(t, http.MethodPost, "/pods/mutate?timeout=1s", bytes.NewReader(review(t, "stuck")))
	if a.code != http.StatusGatewayTimeout || !strings.Contains(a.body, "deadline") {
		t.Errorf("Got %d %s, want 504", a.code, a.body)
	}
	s.admit(t, "/pods/mutate", "u-2")
}

func TestSharedResponse(t *testing.T) {
	shared := &admissionv1.AdmissionResponse{Allowed: true, Warnings: []string{"a\nb"}, AuditAnnotations: map[string]string{"k": "v"}, Patch: []byte(`[{"op":"remove","path":"/spec"}]`)}
	s := serve(t, service(answering(shared)))
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			uid := fmt.Sprint("u-", i)
			a := s.send(t, http.MethodPost, "/pods/mutate", bytes.NewReader(review(t, uid)))
			if a.code != http.StatusOK || !strings.Contains(a.body, `"uid":"`+uid+`"`) {
				t.Errorf("Got %d %s, want the uid %s", a.code, a.body, uid)
			}
		})
	}
	all.Wait()
	if shared.UID != "" || len(shared.Warnings) != 1 {
		t.Errorf("The response was changed: %+v", shared)
	}
}

// TestRequestsDoNotShareBuffers checks that concurrent requests do not overwrite each other's decoded objects.
func TestRequestsDoNotShareBuffers(t *testing.T) {
	s := serve(t, service(func(_ context.Context, ar *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{Allowed: true, AuditAnnotations: map[string]string{"object": string(ar.Object.Raw), "name": ar.Name}}
	}))
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			name := strings.Repeat(fmt.Sprint(i%10), 1+i*20)
			body := fmt.Sprintf(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","name":%q,"object":{"n":%q}}}`, name, name)
			a := s.send(t, http.MethodPost, "/pods/mutate", strings.NewReader(body))
			want := map[string]string{"object": fmt.Sprintf(`{"n":%q}`, name), "name": name}
			if got := response(t, a, "u").AuditAnnotations; !maps.Equal(got, want) {
				t.Errorf("Got %v, want %v", got, want)
			}
		})
	}
	all.Wait()
}

func TestProtocols(t *testing.T) {
	s := serve(t, service(allow))
	for want, protocols := range map[string]func(*http.Protocols){
		"HTTP/1.1": func(p *http.Protocols) { p.SetHTTP1(true) }, "HTTP/2.0": func(p *http.Protocols) { p.SetHTTP2(true) },
	} {
		transport := s.Client().Transport.(*http.Transport).Clone()
		transport.Protocols = &http.Protocols{}
		transport.TLSClientConfig.NextProtos = nil
		protocols(transport.Protocols)
		other := *s
		other.Server.Client().Transport = transport
		for _, size := range []int{0, router.MaxBodyBytes} {
			body := append(review(t, "u-1"), bytes.Repeat([]byte(" "), size)...)
			a := other.send(t, http.MethodPost, "/pods/mutate", bytes.NewReader(body))
			if a.proto != want || a.code != http.StatusOK {
				t.Fatalf("Got %s %d %s, want %s 200", a.proto, a.code, a.body, want)
			}
			if got := response(t, a, "u-1"); got.Allowed != (size == 0) || !got.Allowed && got.Result.Code != http.StatusRequestEntityTooLarge {
				t.Errorf("Got %+v for %d bytes more", got, size)
			}
		}
		transport.CloseIdleConnections()
	}
}

func TestRequestIsHandedOver(t *testing.T) {
	var got *admissionv1.AdmissionRequest
	s := serve(t, service(func(_ context.Context, ar *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		got = ar
		return &admissionv1.AdmissionResponse{Allowed: true}
	}))
	s.admit(t, "/pods/validate", "u-1")
	if got.UID != types.UID("u-1") || got.Operation != admissionv1.Create || got.Resource.Resource != "pods" || string(got.Object.Raw) != `{"spec":{}}` {
		t.Errorf("Got %+v, want the request as it was sent", got)
	}
}
