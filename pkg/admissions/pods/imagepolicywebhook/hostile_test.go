package imagepolicywebhook_test

import (
	"compress/gzip"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestRetryAfter has a backend that is busy more often than there are attempts.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for seconds, tc := range map[string]struct {
		calls int32
		least time.Duration
	}{
		"1": {7, 6 * time.Second}, // it does not count as an attempt
		"0": {5, 0}, "-1": {5, 0}, "soon": {5, 0}, "99999999999999999999": {5, 0},
	} {
		t.Run(seconds, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int32
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				if calls.Add(1) == 7 {
					fmt.Fprint(w, yes)
					return
				}
				w.Header().Set("Retry-After", seconds)
				w.WriteHeader(http.StatusTooManyRequests)
			})
			start := time.Now()
			err := s.plugin(t, "")(within(t, long), podWith("a"))
			if took := time.Since(start); calls.Load() != tc.calls || took < tc.least || (err == nil) != (tc.calls == 7) {
				t.Errorf("Got %v after %d calls in %v, want %d calls in %v at least", err, calls.Load(), took, tc.calls, tc.least)
			}
		})
	}
}

// TestEndlessAnswers has backends that send more than any memory holds.
func TestEndlessAnswers(t *testing.T) {
	raw := func(head, more string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			send(conn, head, strings.Repeat(more, 1<<16/len(more)))
		}
	}
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"headers":         {raw("HTTP/1.1 200 OK\r\n", "X-More: of the same\r\n"), "response headers exceeded"},
		"a header":        {raw("HTTP/1.1 200 OK\r\nX-Long: ", "x"), "response headers exceeded"},
		"a status line":   {raw("HTTP/1.1 200 ", "x"), "response headers exceeded"},
		"interim answers": {raw("", "HTTP/1.1 103 Early Hints\r\nX-More: of the same\r\n\r\n"), ""},
		"a body":          {raw("HTTP/1.1 200 OK\r\nContent-Length: 1099511627776\r\n\r\n", " "), "too large"},
		"chunks":          {raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1;x=y\r\n \r\n"), ""},
		"a bomb": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			zeros := make([]byte, 1<<20)
			for range 1 << 10 {
				if _, err := z.Write(zeros); err != nil {
					return
				}
			}
			_ = z.Close()
		}, "too large"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, tc.answer)
			validate := s.plugin(t, "")
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			contains(t, denial(t, validate(within(t, long), podWith("a"))), tc.want)
			runtime.ReadMemStats(&after)
			// net/http reads up to 10 MiB of headers.
			if used := (after.TotalAlloc - before.TotalAlloc) >> 20; used > 200 {
				t.Errorf("The plugin and the backend used %d MiB", used)
			}
		})
	}
}

// send writes until the client is gone.
func send(conn net.Conn, head, more string) {
	if _, err := conn.Write([]byte(head)); err != nil {
		return
	}
	for {
		if _, err := conn.Write([]byte(more)); err != nil {
			return
		}
	}
}

// TestAShortRequestIsNotAdmitted has a user choose a time for the request (?timeout=1s) that is shorter than a review. With
// defaultAllow this must not admit the pod without a review.
func TestAShortRequestIsNotAdmitted(t *testing.T) {
	t.Parallel()
	busy := func(w http.ResponseWriter, calls int32) {
		if calls%2 == 0 {
			fmt.Fprint(w, no)
			return
		}
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	}
	slow := func(w http.ResponseWriter, _ int32) {
		time.Sleep(600 * time.Millisecond)
		fmt.Fprint(w, no)
	}
	for name, answer := range map[string]func(http.ResponseWriter, int32){"slow": slow, "busy": busy} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int32
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				n := int32(1)
				if r.Method == http.MethodPost {
					n = calls.Add(1)
				}
				answer(w, n)
			})
			validate := s.plugin(t, "defaultAllow: true, denyTTL: -1")
			// An ordinary request has more time.
			contains(t, denial(t, validate(within(t, long), podWith("a"))), "no")
			undecided(t, validate(within(t, 500*time.Millisecond), podWith("a")))
			calls.Store(0)
			// A request that joins the review of a short one.
			short := make(chan error, 1)
			go func() { short <- validate(within(t, 500*time.Millisecond), podWith("b")) }()
			for calls.Load() == 0 {
				time.Sleep(time.Millisecond)
			}
			contains(t, denial(t, validate(within(t, long), podWith("b"))), "no")
			undecided(t, <-short)
		})
	}
}
