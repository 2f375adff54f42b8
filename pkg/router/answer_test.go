package router_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
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

// patching returns an AdmitFunc that answers with a patch of n bytes.
func patching(n int) router.AdmitFunc {
	return answering(&admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(`[{"op":"add","path":"/x","value":"` + strings.Repeat("x", n) + `"}]`)})
}

// dialSlowly opens a connection of a client that takes few bytes before it reads.
func (s *server) dialSlowly(t *testing.T) net.Conn {
	t.Helper()
	plain, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if err := plain.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	config := s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.NextProtos, config.ServerName = nil, "example.com"
	conn := tls.Client(plain, config)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// TestAnswersAreHeld sends requests whose answers nobody reads. The memory of the answers of one source must be bounded,
// and must be given back after a while.
func TestAnswersAreHeld(t *testing.T) {
	s := serveLimited(t, router.Limits{Bytes: 256 << 20, ReadTimeout: 3 * time.Second}, service(patching(10<<20)))
	body := review(t, "u")
	for range 5 {
		conn := s.dialSlowly(t)
		fmt.Fprintf(conn, "POST /pods/mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	// One source may hold 32 MiB. An answer has 13.3 MiB, more than the buffers of a connection.
	await(t, func() bool {
		return s.counts(t)["postern_webhook_rejected_bodies_total mutate too_many_bytes /pods"] == 3
	})
	if n, held := inFlight(t, s); n != 0 || held < 26<<20 || held > 32<<20 {
		t.Errorf("Got %v requests in progress and %v bytes held, want 0, and two answers", n, held)
	}
	await(t, func() bool { _, held := inFlight(t, s); return held == 0 })
}

// TestAnswerBeyondTheLimitOfASource sends a request whose answer needs more than one source may hold. It takes the whole
// limit, so that it is answered.
func TestAnswerBeyondTheLimitOfASource(t *testing.T) {
	s := serveLimited(t, router.Limits{Bytes: 64 << 20}, service(patching(9<<20)))
	if got := s.admit(t, "/pods/mutate", "u"); len(got.Patch) < 9<<20 {
		t.Errorf("Got %d bytes, want the whole patch", len(got.Patch))
	}
	await(t, func() bool { _, held := inFlight(t, s); return held == 0 })
}

// TestDenialNeedsNoMemory denies with a long message while another body of the source holds most of what it may hold. With an
// HTTP error instead, a user could choose the failure policy.
func TestDenialNeedsNoMemory(t *testing.T) {
	release := make(chan struct{})
	s := serveLimited(t, router.Limits{Bytes: 8 << 20}, service(func(context.Context, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		<-release
		return &admissionv1.AdmissionResponse{Result: &metav1.Status{Code: http.StatusForbidden, Message: strings.Repeat("x", 600<<10)}}
	}))
	answers := make(chan answer)
	go func() { answers <- s.post(t, "/pods/mutate", bytes.NewReader(review(t, "u"))) }()
	await(t, func() bool { n, _ := inFlight(t, s); return n == 1 })
	s.dial(t).begin("/pods/mutate", 1<<20, bytes.Repeat([]byte(" "), 400<<10))
	await(t, func() bool { _, held := inFlight(t, s); return held > 500<<10 }) // Of 1 MiB.
	close(release)
	if a := <-answers; a.code != http.StatusOK || response(t, a, "u").Result.Code != http.StatusForbidden {
		t.Errorf("Got %d %.200s, want the denial", a.code, a.body)
	}
}

// TestDeadlineIsForOneAnswer sends further requests on a connection after the deadline of a large answer has passed.
func TestDeadlineIsForOneAnswer(t *testing.T) {
	s := serveLimited(t, router.Limits{ReadTimeout: 200 * time.Millisecond}, service(patching(1<<20)))
	conn := s.dial(t)
	body := review(t, "u")
	for range 3 {
		conn.begin("/pods/mutate", len(body), body)
		if code, closes := conn.end(t); code != http.StatusOK || closes {
			t.Fatalf("Got %d on a connection that closes: %t, want 200 and that it stays", code, closes)
		}
		<-time.After(300 * time.Millisecond)
	}
}

// retaining is the writer of a connection that fails and still uses what it was to write.
type retaining struct {
	*httptest.ResponseRecorder

	kept, copied [][]byte
	fails        bool
}

func (r *retaining) Write(p []byte) (int, error) {
	if !r.fails {
		return len(p), nil
	}
	r.kept, r.copied = append(r.kept, p), append(r.copied, bytes.Clone(p))
	return 0, errors.New("on purpose")
}

// TestBufferAfterAFailure covers HTTP/2, where the connection may read an answer after the stream has failed. Later answers
// must not change it.
func TestBufferAfterAFailure(t *testing.T) {
	r, err := router.New([]router.AdmissionService{service(allow)}, router.NewMetrics(metrics.NewKubeRegistry()))
	if err != nil {
		t.Fatal(err)
	}
	w := &retaining{ResponseRecorder: httptest.NewRecorder()}
	for i := range 200 {
		w.fails = i%2 == 0
		req := httptest.NewRequest(http.MethodPost, "/pods/mutate", bytes.NewReader(review(t, fmt.Sprintf("uid-%04d", i))))
		req.Header.Set("Content-Type", "application/json")
		r.ServeHTTP(w, req)
	}
	if len(w.kept) != 100 {
		t.Fatalf("Got %d failures, want 100", len(w.kept))
	}
	for i, p := range w.kept {
		if !bytes.Equal(p, w.copied[i]) {
			t.Fatalf("The answer %s is now %s", w.copied[i], p)
		}
	}
}
