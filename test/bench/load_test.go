package main

import (
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// startServer starts a server in this process, and clients of it.
func startServer(t *testing.T, connections int, answer func(body string) string) *server {
	t.Helper()
	ts := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil || req.Header.Get("Content-Type") != "application/json" || req.URL.Query().Get("timeout") == "" {
			t.Errorf("Got a request that kube-apiserver would not send: %v %v", req, err)
		}
		fmt.Fprint(w, answer(string(body)))
	}))
	ts.EnableHTTP2 = true
	ts.StartTLS()
	t.Cleanup(ts.Close)
	roots := x509.NewCertPool()
	roots.AddCert(ts.Certificate())
	s := &server{name: "test", path: "/", address: ts.Listener.Addr().String()}
	for range connections {
		s.clients = append(s.clients, s.newClient(roots))
	}
	return s
}

func messages(n int) []message {
	var out []message
	for i := range n {
		out = append(out, message{uid: newUID(i), body: []byte(newUID(i))})
	}
	return out
}

func allowing(uid string) string { return `{"response":{"uid":"` + uid + `","allowed":true}}` }

func TestSendSendsEveryRequestOnce(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]int{}
	s := startServer(t, 4, func(uid string) string {
		mu.Lock()
		defer mu.Unlock()
		seen[uid]++
		return allowing(uid)
	})
	l, err := s.send(t.Context(), messages(4), 200)
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, n := range seen {
		total += n
	}
	if total != 200 || l.requests != 200 || len(l.latencies) != 200 || l.wall <= 0 {
		t.Errorf("Got %d requests and %+v, want 200", total, l)
	}
}

func TestSendStopsAtAWrongAnswer(t *testing.T) {
	for name, answer := range map[string]string{
		"another uid": allowing("other"), "not allowed": `{"response":{"uid":"` + string(newUID(0)) + `","allowed":false}}`,
	} {
		var requests atomic.Int64
		s := startServer(t, 1, func(uid string) string {
			if requests.Add(1) < 3 {
				return allowing(uid)
			}
			return answer
		})
		_, err := s.send(t.Context(), messages(1), 100)
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got error %v", name, err)
		}
		if n := requests.Load(); n != 3 {
			t.Errorf("%s: got %d requests, want 3", name, n)
		}
	}
}
