package imagepolicywebhook_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestRetryAfter has a backend that is busy more often than there are attempts. With a number of seconds, any error is
// repeated and does not count as an attempt. 0 counts as 1, so that no request is repeated without a pause.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for seconds, want := range map[string]map[int]int32{
		"0": {429: 7, 503: 7}, "1": {429: 7, 503: 7},
		"-1": {429: 5, 503: 1}, "soon": {429: 5, 503: 1}, "99999999999999999999": {429: 5, 503: 1},
	} {
		for code, want := range want {
			t.Run(fmt.Sprint(seconds, " ", code), func(t *testing.T) {
				t.Parallel()
				var calls atomic.Int32
				s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
					if calls.Add(1) == 7 {
						fmt.Fprint(w, yes)
						return
					}
					w.Header().Set("Retry-After", seconds)
					w.WriteHeader(code)
				})
				start := time.Now()
				err := s.plugin(t, "")(within(t, long), podWith("a"))
				least := time.Duration(0)
				if want == 7 {
					least = 6 * time.Second
				}
				if took := time.Since(start); calls.Load() != want || took < least || (err == nil) != (want == 7) {
					t.Errorf("Got %v after %d calls in %v, want %d calls in %v at least", err, calls.Load(), took, want, least)
				}
			})
		}
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

// TestTheFirstRequestIsShort has a user choose a time for the first request after a start (?timeout=). The backend would deny
// the pod, but needs longer. A request of another user, with all the time, shares the review of the short request.
func TestTheFirstRequestIsShort(t *testing.T) {
	t.Parallel()
	for asked, answers := range map[time.Duration]time.Duration{
		2 * time.Second: 2 * time.Second, 6 * time.Second: 5500 * time.Millisecond, 7 * time.Second: 8 * time.Second, 9 * time.Second: 8 * time.Second,
	} {
		t.Run(asked.String(), func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int32
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				calls.Add(1)
				select {
				case <-time.After(answers):
					fmt.Fprint(w, no)
				case <-r.Context().Done():
				}
			})
			// The router's deadline is earlier than that of the API server.
			ofRouter := asked - min(asked/10, 500*time.Millisecond)
			undecided(t, s.registered(t, "defaultAllow: true", 10*time.Second)(within(t, ofRouter), podWith("a")))

			validate := s.plugin(t, "defaultAllow: true")
			calls.Store(0)
			short := make(chan error, 1)
			go func() { short <- validate(within(t, ofRouter), podWith("a")) }()
			for calls.Load() == 0 {
				time.Sleep(time.Millisecond)
			}
			contains(t, denial(t, validate(within(t, long), podWith("a"))), "no")
			if <-short == nil {
				t.Error("The pod was admitted")
			}
		})
	}
}
