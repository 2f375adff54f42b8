package router_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/postern-dev/postern/pkg/router"
)

// padded returns a body of n bytes.
func padded(body []byte, n int) []byte {
	return append(bytes.Clone(body), bytes.Repeat([]byte(" "), n-len(body))...)
}

// within returns a review with the request.
func within(request string) []byte {
	return []byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":` + request + `}`)
}

// nested returns arrays in each other.
func nested(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }

// lengths are the ways to send a body: with its length, and in chunks.
var lengths = map[string]func([]byte) io.Reader{
	"":           func(b []byte) io.Reader { return bytes.NewReader(b) },
	" in chunks": func(b []byte) io.Reader { return io.MultiReader(bytes.NewReader(b)) },
}

func TestBodies(t *testing.T) {
	s := serve(t, service(allow))
	full := review(t, "u-1")
	for _, c := range []struct {
		name string
		body []byte
		code int
		want string
	}{
		{"a review", full, 200, ""},
		{"the largest", padded(full, router.MaxBodyBytes), 200, ""},
		{"too large, without a uid", bytes.Repeat([]byte(" "), router.MaxBodyBytes+1), 413, "larger than the 26214400 bytes"},
		{"too large, with a uid that is far behind", append(bytes.Repeat([]byte(" "), 5000), padded(full, router.MaxBodyBytes)...), 413, "larger than the 26214400 bytes"},
		{"a large old object", within(`{"uid":"u-1","oldObject":{"a":"` + strings.Repeat("x", 12<<20) + `"}}`), 200, ""},
		{"a uid that is none", within(`{"uid":{"uid":"u-1"},"dryRun":7}`), 400, "not an AdmissionReview"},
		{"a uid of something else", within(`{"options":{"uid":"u-1"},"dryRun":7}`), 400, "not an AdmissionReview"},
		{"empty", nil, 400, "the body is empty"},
		{"blank", []byte(" \n"), 400, "not an AdmissionReview"},
		{"garbage", []byte("\x16\x03\x01 hello"), 400, "not an AdmissionReview"},
		{"null", []byte("null"), 400, `kind "" of version ""`},
		{"a list", []byte("[]"), 400, "not an AdmissionReview"},
		{"a string", []byte(`"review"`), 400, "not an AdmissionReview"},
		{"an empty object", []byte("{}"), 400, `kind "" of version ""`},
		{"no request", []byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`), 400, "has no request"},
		{"a null request", within("null"), 400, "has no request"},
		{"only a response", []byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"u-1"}}`), 400, "has no request"},
		{"an old version", []byte(`{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{"uid":"u-1"}}`), 400, `version "admission.k8s.io/v1beta1"`},
		{"another kind", []byte(`{"apiVersion":"admission.k8s.io/v1","kind":"Pod","request":{"uid":"u-1"}}`), 400, `kind "Pod"`},
		{"names in the wrong case", []byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","Request":{"uid":"u-1"}}`), 400, "has no request"},
		{"a field of the wrong type", within(`{"uid":7}`), 400, "not an AdmissionReview"},
		{"an unknown field", within(`{"uid":"u-1","new":{}}`), 200, ""},
		{"a huge number in the object", within(`{"uid":"u-1","object":{"n":1e99999}}`), 200, ""},
		{"nested deeply", within(`{"uid":"u-1","object":{"a":` + nested(9000) + `}}`), 200, ""},
		{"not UTF-8 in the object", within("{\"uid\":\"u-1\",\"object\":{\"a\":\"\xff\xfe\"}}"), 200, ""},
	} {
		for chunked, length := range lengths {
			t.Run(c.name+chunked, func(t *testing.T) {
				a := s.send(t, http.MethodPost, "/pods/mutate", length(c.body))
				if a.code != c.code || !strings.Contains(a.body, c.want) {
					t.Fatalf("Got %d %.200s, want %d with %q", a.code, a.body, c.code, c.want)
				}
				if c.code == http.StatusOK {
					response(t, a, "u-1")
				}
			})
		}
	}
}

// TestBodiesOfUsersAreDenied covers bodies that are wrong by what a user can choose. The API server writes the uid first. A
// failure instead of an answer would leave the request to the failure policy.
func TestBodiesOfUsersAreDenied(t *testing.T) {
	s := serve(t, service(allow))
	full := review(t, "u-1")
	for _, c := range []struct {
		name string
		body []byte
		code int32
		want string
	}{
		{"a byte too large", padded(full, router.MaxBodyBytes+1), 413, "larger than the 26214400 bytes"},
		{"far too large", padded(full, 3*router.MaxBodyBytes), 413, "larger than the 26214400 bytes"},
		{"half of one", full[:len(full)/2], 400, "not an AdmissionReview"},
		{"two of them", append(bytes.Clone(full), full...), 400, "not an AdmissionReview"},
		{"something after it", append(bytes.Clone(full), "x"...), 400, "not an AdmissionReview"},
		{"a huge number in the envelope", within(`{"uid":"u-1","dryRun":1e99999}`), 400, "not an AdmissionReview"},
		{"nested too deeply", within(`{"uid":"u-1","object":{"a":` + nested(100_000) + `}}`), 400, "not an AdmissionReview"},
		{"an object too large", within(`{"uid":"u-1","object":{"a":"` + strings.Repeat("x", 12<<20) + `"}}`), 413, "request.object has 12582920 bytes, more than the 12582912 that are allowed"},
		{"an error as long as the body", within(`{"uid":"u-1","dryRun":` + strings.Repeat("1", 1<<20) + `}`), 400, "not an AdmissionReview"},
		{"members before the uid", within(`{"name":"n","options":{"uid":"u-2","a":[{}]},"uid":"u-1","dryRun":7}`), 400, "not an AdmissionReview"},
	} {
		for chunked, length := range lengths {
			t.Run(c.name+chunked, func(t *testing.T) {
				a := s.send(t, http.MethodPost, "/pods/mutate", length(c.body))
				if a.code != http.StatusOK {
					t.Fatalf("Got %d %.200s, want an answer", a.code, a.body)
				}
				got := response(t, a, "u-1")
				if len(got.Result.Message) > 2000 {
					t.Errorf("Got a message of %d bytes", len(got.Result.Message))
				}
				if got.Allowed || got.Result.Code != c.code || !strings.Contains(got.Result.Message, c.want) {
					t.Errorf("Got %+v, want a denial with the code %d and %q", got, c.code, c.want)
				}
			})
		}
	}
	counts := s.counts(t)
	if got := counts["postern_webhook_rejected_bodies_total mutate too_large /pods"]; got != 4 {
		t.Errorf("Got %v bodies counted as too large, want 4", got)
	}
}

func TestUIDsThatAreOdd(t *testing.T) {
	s := serve(t, service(allow))
	for raw, want := range map[string]string{"": "", "\xff": "\ufffd", `<&>\"`: `<&>"`, "☃": "☃"} {
		body := []byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"` + raw + `"}}`)
		a := s.send(t, http.MethodPost, "/pods/mutate", bytes.NewReader(body))
		if a.code != http.StatusOK {
			t.Fatalf("%q: got %d %s, want 200", raw, a.code, a.body)
		}
		response(t, a, want)
	}
}

func TestMethodsAndPaths(t *testing.T) {
	s := serve(t, service(allow))
	for _, method := range []string{"GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "ODD"} {
		a := s.send(t, method, "/pods/mutate", nil)
		if a.code != http.StatusMethodNotAllowed || a.header.Get("Allow") != "POST" {
			t.Errorf("%s: got %d and Allow %q, want 405 and POST", method, a.code, a.header.Get("Allow"))
		}
	}
	for path, code := range map[string]int{
		"/pods/mutate": 200, "/pods/validate": 200, "/pods/mutate?timeout=5s&x=y": 200, "/%70ods/mutate": 200,
		"/pods/mutate/": 404, "//pods/mutate": 404, "/pods//mutate": 404, "/pods/mutate/..": 404, "/pods/./mutate": 404, "/x/../pods/mutate": 404,
		"/": 404, "/pods": 404, "/Pods/mutate": 404, "/pods/mutating": 404, "/pods/mutate%2f": 404, "/metrics": 404,
	} {
		a := s.send(t, http.MethodPost, path, bytes.NewReader(review(t, "u-1")))
		if a.code != code {
			t.Errorf("%s: got %d %s, want %d", path, a.code, a.body, code)
		}
	}
}

func TestContentTypes(t *testing.T) {
	s := serve(t, service(allow))
	for _, c := range []struct {
		contentType, encoding string
		code                  int
	}{
		{"application/json", "", 200},
		{"application/json; charset=utf-8", "", 200},
		{"APPLICATION/JSON", "identity", 200},
		{"", "", 415},
		{"text/plain", "", 415},
		{"application/jsonx", "", 415},
		{"application/vnd.kubernetes.protobuf", "", 415},
		{"application/json; charset", "", 415},
		{"application/json", "gzip", 415},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/pods/validate", bytes.NewReader(review(t, "u-1")))
		if err != nil {
			t.Fatal(err)
		}
		req.Header["Content-Type"] = []string{c.contentType}
		if c.encoding != "" {
			req.Header.Set("Content-Encoding", c.encoding)
		}
		if a := s.do(t, req); a.code != c.code {
			t.Errorf("%q %q: got %d %s, want %d", c.contentType, c.encoding, a.code, a.body, c.code)
		}
	}
}

func TestTimeouts(t *testing.T) {
	var left time.Duration
	s := serve(t, service(func(ctx context.Context, _ *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		deadline, _ := ctx.Deadline()
		left = time.Until(deadline)
		return &admissionv1.AdmissionResponse{Allowed: true}
	}))
	for _, c := range []struct {
		query string
		most  time.Duration // The rest is for the transfer of the answer.
	}{
		{"", 9500 * time.Millisecond},
		{"?", 9500 * time.Millisecond},
		{"?timeout=", 9500 * time.Millisecond},
		{"?timeout=1s", 900 * time.Millisecond},
		{"?timeout=5s", 4500 * time.Millisecond},
		{"?timeout=30s", 29500 * time.Millisecond},
		{"?timeout=1h", 29500 * time.Millisecond},
		{"?timeout=2000000h", 29500 * time.Millisecond},
		{"?timeout=0s", 0},
		{"?timeout=-5s", 0},
		{"?timeout=5", 0},
		{"?timeout=soon", 0},
		{"?timeout=99999999999h", 0},
		{"?timeout=NaN", 0},
	} {
		left = 0
		a := s.send(t, http.MethodPost, "/pods/mutate"+c.query, bytes.NewReader(review(t, "u-1")))
		switch {
		case c.most == 0 && (a.code != http.StatusBadRequest || !strings.Contains(a.body, "not a positive duration")):
			t.Errorf("%s: got %d %s, want 400", c.query, a.code, a.body)
		case c.most > 0 && (a.code != http.StatusOK || left <= 0 || left > c.most):
			t.Errorf("%s: got %d %s with %v left, want 200 with at most %v", c.query, a.code, a.body, left, c.most)
		}
	}
}

// TestContentLengthsThatLie uses a plain connection, because net/http's client sends only correct lengths.
func TestContentLengthsThatLie(t *testing.T) {
	s := serve(t, service(allow))
	full := review(t, "u-1")
	for _, c := range []struct {
		name   string
		length int
		code   int
		want   string
	}{
		{"too small", len(full) - 1, 200, "not an AdmissionReview"},
		{"none at all", 0, 400, "the body is empty"},
		{"too large", len(full) + 1, 400, "reading the body"},
		{"far too large", router.MaxBodyBytes * 2, 400, "reading the body"},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, err := tls.Dial("tcp", s.Listener.Addr().String(), s.Client().Transport.(*http.Transport).TLSClientConfig)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "POST /pods/mutate HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", c.length, full)
			if err := conn.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(conn)
			if err != nil || !strings.HasPrefix(string(got), fmt.Sprintf("HTTP/1.1 %d ", c.code)) || !strings.Contains(string(got), c.want) {
				t.Errorf("Got %s (%v), want %d with %q", got, err, c.code, c.want)
			}
		})
	}
}

// TestBodyThatNeverEnds sends only the first bytes of a body. The router must not wait for the rest longer than
// the time-out.
func TestBodyThatNeverEnds(t *testing.T) {
	s := serve(t, service(allow))
	r, w := io.Pipe()
	t.Cleanup(func() { w.Close() })
	go func() { _, _ = io.WriteString(w, `{"apiVersion":`) }()
	a := s.send(t, http.MethodPost, "/pods/mutate?timeout=1s", r)
	if a.code != http.StatusServiceUnavailable || !strings.Contains(a.body, "the body did not arrive in time") {
		t.Errorf("Got %d %s, want 503", a.code, a.body)
	}
}
