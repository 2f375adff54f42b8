package router_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/pkg/router"
)

// post sends a review and returns the answer. Unlike send it may be called from
// any goroutine.
func (s *server) post(t *testing.T, path string, body io.Reader) (a answer) {
	t.Helper()
	resp, err := s.Client().Post(s.URL+path, "application/json", body)
	if err != nil {
		t.Errorf("Sending a request: %v", err)
		return a
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Errorf("Reading an answer: %v", err)
	}
	return answer{resp.StatusCode, resp.Header, string(data), resp.Proto}
}

// outcome returns the code of a denial, or else that of HTTP.
func (a answer) outcome() int {
	var got admissionv1.AdmissionReview
	if json.Unmarshal([]byte(a.body), &got) == nil && got.Response != nil && !got.Response.Allowed && got.Response.Result != nil {
		return int(got.Response.Result.Code)
	}
	return a.code
}

// busy returns why a request is denied because of other ones, or "" if it is not. Whoever sends those must not choose the failure
// policy. Clients of client-go repeat the request.
func busy(t *testing.T, a answer) string {
	t.Helper()
	if a.code != http.StatusOK {
		return ""
	}
	got := response(t, a, "u")
	if got.Allowed || got.Result.Code != http.StatusTooManyRequests || got.Result.Details == nil || got.Result.Details.RetryAfterSeconds != 1 {
		return ""
	}
	return got.Result.Message
}

// blocking is an AdmitFunc that ignores its context until release is closed.
func blocking(release <-chan struct{}) router.AdmitFunc {
	return func(context.Context, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		<-release
		return &admissionv1.AdmissionResponse{Allowed: true}
	}
}

// TestSlotOutlivesTheAnswer covers funcs that run past their deadline. Their slot
// and memory stay taken until they return.
func TestSlotOutlivesTheAnswer(t *testing.T) {
	release := make(chan struct{})
	s := serveLimited(t, router.Limits{Requests: 2}, service(blocking(release)))
	codes, denied := map[int]int{}, 0
	for range 5 {
		var mu sync.Mutex
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				a := s.post(t, "/pods/mutate?timeout=200ms", bytes.NewReader(review(t, "u")))
				mu.Lock()
				defer mu.Unlock()
				if busy(t, a) == "too many requests are being decided" {
					denied++
				} else {
					codes[a.code]++
				}
			})
		}
		all.Wait()
	}
	if codes[http.StatusGatewayTimeout] != 2 || denied != 48 {
		t.Errorf("%d are denied, and the others got the codes %v, want 504 for the 2 that were taken, and 429 for the others", denied, codes)
	}
	if got := s.counts(t)["postern_webhook_requests_in_flight mutate /pods"]; got != 2 {
		t.Errorf("Got %v in flight, want 2", got)
	}
	close(release)
	await(t, func() bool { return s.counts(t)["postern_webhook_requests_in_flight mutate /pods"] == 0 })
	s.admit(t, "/pods/mutate", "u")
}

// TestSlotAfterPanic covers a func that panics after its deadline.
func TestSlotAfterPanic(t *testing.T) {
	calls := 0
	s := serveLimited(t, router.Limits{Requests: 1}, service(func(ctx context.Context, _ *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		if calls++; calls == 1 {
			<-ctx.Done()
			panic("on purpose")
		}
		return &admissionv1.AdmissionResponse{Allowed: true}
	}))
	s.post(t, "/pods/mutate?timeout=100ms", bytes.NewReader(review(t, "u")))
	await(t, func() bool { return s.counts(t)["postern_webhook_requests_in_flight mutate /pods"] == 0 })
	s.admit(t, "/pods/mutate", "u")
}

// TestBodiesTakeNoSlots opens 100 connections that send one byte of a body. The router must serve other requests,
// and must close these connections soon.
func TestBodiesTakeNoSlots(t *testing.T) {
	s := serveLimited(t, router.Limits{Requests: 2, ReadTimeout: time.Second}, service(allow))
	start := time.Now()
	conns := make([]*tls.Conn, 100)
	for i := range conns {
		conn, err := tls.Dial("tcp", s.Listener.Addr().String(), s.Client().Transport.(*http.Transport).TLSClientConfig)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprint(conn, "POST /pods/mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{")
		conns[i] = conn
	}
	s.admit(t, "/pods/mutate", "u")
	for _, conn := range conns {
		if got, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 503 ") || !strings.Contains(string(got), "Retry-After: 1\r\n") {
			t.Fatalf("Got %s (%v), want 503 with Retry-After", got, err)
		}
	}
	if took := time.Since(start); took > 4*time.Second {
		t.Errorf("They were waited for %v, want a second", took)
	}
}

// TestReadTimeoutIsForTheBody covers a decision that takes longer than the time-out of a body.
func TestReadTimeoutIsForTheBody(t *testing.T) {
	s := serveLimited(t, router.Limits{ReadTimeout: 100 * time.Millisecond}, service(func(ctx context.Context, _ *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		select {
		case <-ctx.Done():
			return &admissionv1.AdmissionResponse{Result: &metav1.Status{Code: 500, Message: "the request was given up"}}
		case <-time.After(400 * time.Millisecond):
			return &admissionv1.AdmissionResponse{Allowed: true}
		}
	}))
	for _, http2 := range []bool{true, false} {
		s.Client().Transport.(*http.Transport).ForceAttemptHTTP2 = http2
		s.admit(t, "/pods/mutate", "u")
	}
}

// reviewOf returns a review of a user's request.
func reviewOf(t *testing.T, user authenticationv1.UserInfo) []byte {
	t.Helper()
	return encode(t, &admissionv1.AdmissionRequest{UID: "u", UserInfo: user})
}

// TestSystemShare fills the slots for ordinary requests.
func TestSystemShare(t *testing.T) {
	release := make(chan struct{})
	started := make(chan struct{})
	s := serveLimited(t, router.Limits{Requests: 4}, service(func(context.Context, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		started <- struct{}{}
		<-release
		return &admissionv1.AdmissionResponse{Allowed: true}
	}))
	codes := make(chan int, 4)
	ordinary := reviewOf(t, authenticationv1.UserInfo{Username: "alice", Groups: []string{"system:authenticated"}})
	send := func(body []byte) { codes <- s.post(t, "/pods/mutate", bytes.NewReader(body)).outcome() }
	for range 3 {
		go send(ordinary)
		<-started
	}
	for name, body := range map[string][]byte{
		"alice": ordinary,
		"a service account": reviewOf(t, authenticationv1.UserInfo{
			Username: "system:serviceaccount:kube-systems:x", Groups: []string{"system:serviceaccounts:kube-system"},
		}),
	} {
		before := time.Now()
		if a := s.post(t, "/pods/mutate", bytes.NewReader(body)); busy(t, a) == "" {
			t.Errorf("%s: got %d %s, want a denial with 429", name, a.code, a.body)
		}
		if took := time.Since(before); took > 500*time.Millisecond {
			t.Errorf("%s: it took %v, want it at once", name, took)
		}
	}
	go send(reviewOf(t, authenticationv1.UserInfo{Username: "system:node:n", Groups: []string{"system:nodes"}}))
	<-started
	if a := s.post(t, "/pods/mutate", bytes.NewReader(reviewOf(t, authenticationv1.UserInfo{Username: "system:kube-controller-manager"}))); a.code != http.StatusTooManyRequests {
		t.Errorf("Got %d with every slot taken, want 429", a.code)
	}
	close(release)
	for range 4 {
		if code := <-codes; code != http.StatusOK {
			t.Errorf("Got %d, want 200", code)
		}
	}
	for _, user := range []string{"system:kube-scheduler", "system:serviceaccount:kube-system:node-controller", "system:serviceaccount:postern-system:postern"} {
		go func() { <-started }()
		if a := s.post(t, "/pods/mutate", bytes.NewReader(reviewOf(t, authenticationv1.UserInfo{Username: user}))); a.outcome() != http.StatusOK {
			t.Errorf("%s: got %d, want 200", user, a.code)
		}
	}
}

// TestComponentsAreNotToldToWait has a denial with a time after which to repeat the request. client-go would keep a worker of a
// controller for that time, ten times.
func TestComponentsAreNotToldToWait(t *testing.T) {
	no := &admissionv1.AdmissionResponse{Result: &metav1.Status{
		Code: http.StatusTooManyRequests, Message: "not yet", Details: &metav1.StatusDetails{Name: "db-0", RetryAfterSeconds: 7},
	}}
	s := serve(t, service(answering(no)))
	for user, want := range map[string]int32{
		"alice": 7, "system:serviceaccount:shop:ci": 7, "system:node:node-1": 7, "system:kube-scheduler": 0,
		"system:serviceaccount:kube-system:job-controller": 0, "system:serviceaccount:postern-system:postern": 0,
	} {
		ar := from("shop", user)
		if user == "system:node:node-1" {
			ar.UserInfo.Groups = []string{"system:nodes"}
		}
		got := response(t, s.post(t, "/pods/validate", bytes.NewReader(encode(t, &ar))), "u").Result
		if got.Code != http.StatusTooManyRequests || got.Message != "not yet" || got.Details.Name != "db-0" || got.Details.RetryAfterSeconds != want {
			t.Errorf("%s: got %+v with the details %+v, want %d seconds", user, got, got.Details, want)
		}
	}
	if no.Result.Details.RetryAfterSeconds != 7 {
		t.Error("The router changed what the AdmitFunc returned")
	}
}

// TestUnavailableIsRepeated checks the Retry-After header. client-go repeats a request after an answer with this
// header.
func TestUnavailableIsRepeated(t *testing.T) {
	for code, want := range map[int32]string{500: "", 503: "1", 504: ""} {
		s := serve(t, service(answering(&admissionv1.AdmissionResponse{Result: &metav1.Status{Code: code, Message: "no"}})))
		if a := s.post(t, "/pods/mutate", bytes.NewReader(review(t, "u"))); a.code != int(code) || a.header.Get("Retry-After") != want {
			t.Errorf("Got %d with Retry-After %q, want %d with %q", a.code, a.header.Get("Retry-After"), code, want)
		}
	}
}

// await waits until a condition holds that may become true shortly after an answer.
func await(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("Timed out waiting for the condition")
		}
	}
}

// TestStrangersDoNotFillTheLog sends requests whose decision fails and bodies that are not reviews.
func TestStrangersDoNotFillTheLog(t *testing.T) {
	s := serve(t, service(func(context.Context, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		panic("on purpose")
	}),
		router.AdmissionService{Path: "/broken", Mutate: answering(nil), MutatingConfig: config("broken")})
	for range 50 {
		s.post(t, "/pods/mutate", bytes.NewReader(review(t, "u")))
		s.post(t, "/broken/mutate", bytes.NewReader(review(t, "u")))
		s.post(t, "/pods/mutate", strings.NewReader("garbage"))
	}
	if n := strings.Count(s.log.String(), "suppressed="); n > 6 {
		t.Errorf("Got %d messages, want one a second of each sort:\n%.2000s", n, s.log)
	}
	time.Sleep(1100 * time.Millisecond)
	s.post(t, "/broken/mutate", bytes.NewReader(review(t, "u")))
	if got := s.log.String(); !strings.Contains(got, "suppressed=9") && !strings.Contains(got, "suppressed=4") {
		t.Errorf("Got no line with the number of suppressed lines:\n%s", got)
	}
}
