package router_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/postern-dev/postern/pkg/router"
)

// kept is a connection of a client that keeps it open, as an API server does.
type kept struct {
	*tls.Conn

	answers *bufio.Reader
}

// dial opens a connection with HTTP/1.1.
func (s *server) dial(t *testing.T) *kept {
	t.Helper()
	config := s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.NextProtos = nil
	conn, err := tls.Dial("tcp", s.Listener.Addr().String(), config)
	if err != nil {
		t.Fatalf("Dialing: %v", err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	return &kept{conn, bufio.NewReader(conn)}
}

// begin sends the header of a request, and a part of its body.
func (k *kept) begin(path string, length int, part []byte) {
	_, _ = fmt.Fprintf(k, "POST %s HTTP/1.1\r\nHost: postern\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", path, length)
	_, _ = k.Write(part)
}

// end reads the answer. It returns the code, and whether the server closes the connection.
func (k *kept) end(t *testing.T) (code int, closes bool) {
	t.Helper()
	resp, err := http.ReadResponse(k.answers, nil)
	if err != nil {
		t.Errorf("Reading an answer: %v", err)
		return 0, true
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Errorf("Reading an answer: %v", err)
	}
	return resp.StatusCode, resp.Close
}

// isUsable sends one more review on a connection that the server keeps. The review must be answered: the server may only keep
// connections that work.
func (k *kept) isUsable(t *testing.T, first int, closes bool) {
	t.Helper()
	if closes {
		return
	}
	body := review(t, "next")
	k.begin("/pods/mutate", len(body), body)
	if code, _ := k.end(t); code != http.StatusOK {
		t.Errorf("After an answer %d, the connection was kept, and the next review was answered %d, want 200", first, code)
	}
}

// TestLateBody covers bodies whose last byte arrives around the time limit. net/http cancels the context of the connection
// if the limit passes while it reads, so that all later requests on the connection would be canceled from the start.
func TestLateBody(t *testing.T) {
	const limit = 300 * time.Millisecond
	for _, c := range []struct {
		name, path string
		limits     router.Limits
	}{
		{"the limit of the router", "/pods/mutate", router.Limits{ReadTimeout: limit}},
		{"the deadline of the request", "/pods/mutate?timeout=330ms", router.Limits{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serveLimited(t, c.limits, service(allow))
			body := review(t, "late")
			var all sync.WaitGroup
			for i := range 200 {
				conn := s.dial(t)
				all.Go(func() {
					conn.begin(c.path, len(body), body[:len(body)-1])
					time.Sleep(limit + time.Duration(i-100)*200*time.Microsecond)
					_, _ = conn.Write(body[len(body)-1:])
					code, closes := conn.end(t)
					if code != http.StatusOK && code != http.StatusServiceUnavailable && code != http.StatusGatewayTimeout {
						t.Errorf("Got %d, want 200, or 503 or 504 for a body that is late", code)
					}
					conn.isUsable(t, code, closes)
				})
			}
			all.Wait()
		})
	}
}

// TestMissingBody covers bodies that stop arriving.
func TestMissingBody(t *testing.T) {
	big := bytes.Repeat([]byte(" "), router.MaxBodyBytes+1)
	for _, c := range []struct {
		name   string
		limits router.Limits
		length int
		part   []byte
		want   int
	}{
		{"in the middle", router.Limits{}, 100, []byte("{"), http.StatusServiceUnavailable},
		{"after the largest size", router.Limits{}, 2 * len(big), big, http.StatusRequestEntityTooLarge},
		{"after the bytes are used up", router.Limits{Bytes: 4 << 20}, len(big), big[:2<<20], http.StatusTooManyRequests},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.limits.ReadTimeout = 2 * time.Second
			s := serveLimited(t, c.limits, service(allow))
			if c.limits.Bytes > 0 {
				s.dial(t).begin("/pods/mutate", len(big), big[:1<<20])
				await(t, func() bool { _, held := inFlight(t, s); return held == float64(c.limits.Bytes)*7/64 })
			}
			conn := s.dial(t)
			conn.begin("/pods/mutate", c.length, c.part)
			code, closes := conn.end(t)
			if code != c.want || !closes {
				t.Errorf("Got the code %d, and closes = %t, want %d on a connection that is closed", code, closes, c.want)
			}
		})
	}
}

// TestLateDecision covers decisions that end after their deadline: the connection stays in use.
func TestLateDecision(t *testing.T) {
	s := serve(t, service(func(ctx context.Context, _ *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		<-ctx.Done()
		return &admissionv1.AdmissionResponse{Allowed: true}
	}))
	conn := s.dial(t)
	body := review(t, "slow")
	for range 2 {
		conn.begin("/pods/mutate?timeout=100ms", len(body), body)
		if code, closes := conn.end(t); code == http.StatusServiceUnavailable || closes {
			t.Errorf("Got the code %d, and closes = %t, want an answer on a connection that is kept", code, closes)
		}
	}
}
