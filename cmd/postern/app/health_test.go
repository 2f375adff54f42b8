package app

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/cmd/postern/app/secure"
)

// get sends a request to a handler.
func get(h http.Handler, path string) (code int, body string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

func TestReadiness(t *testing.T) {
	synced := newFlagged(errors.New("informers have not synced yet"))
	registered := errors.New("not registered yet: no route")
	h := &health{
		checks: []check{{"certificates", func() error { return nil }}, {"informers", synced.ready}},
		infos:  []check{{"webhooks", func() error { return registered }}},
	}
	mux := http.NewServeMux()
	h.register(mux)
	want := func(when, path string, code int, body string) {
		t.Helper()
		if gotCode, got := get(mux, path); gotCode != code || strings.TrimSpace(got) != body {
			t.Errorf("%s, %s: got %d %q, want %d %q", when, path, gotCode, got, code, body)
		}
	}
	const notYet = "[+]certificates ok\n[-]informers failed: informers have not synced yet\n[+]shutdown ok\n[!]webhooks: not registered yet: no route\nreadyz check failed"
	want("Before the informers", "/readyz", 503, notYet)
	want("Before the informers", "/readyz?verbose", 503, notYet)
	want("Before the informers", "/livez", 200, "ok")
	synced.set()
	want("Ready", "/readyz", 200, "ok")
	want("Not registered", "/readyz?verbose", 200, "[+]certificates ok\n[+]informers ok\n[+]shutdown ok\n[!]webhooks: not registered yet: no route\nreadyz check passed")
	registered = nil
	want("Ready", "/readyz?verbose", 200, "[+]certificates ok\n[+]informers ok\n[+]shutdown ok\n[+]webhooks ok\nreadyz check passed")
	h.draining.Store(true)
	want("Shutting down", "/readyz", 503, "[+]certificates ok\n[+]informers ok\n[-]shutdown failed: shutting down\n[+]webhooks ok\nreadyz check failed")
	want("Shutting down", "/livez", 200, "ok")
}

// TestDrain covers a request that is sent before the shutdown and answered after its begin, and a request
// that is sent before the cluster knows of the shutdown.
func TestDrain(t *testing.T) {
	started, release := make(chan struct{}), make(chan struct{})
	o := &options{shutdownDelay: 3 * time.Second, shutdownConnections: time.Second}
	h := &health{}
	srv := secure.NewServer(t.Context(), o.secureHandler(h, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/slow" {
			close(started)
			<-release
		}
		_, _ = io.WriteString(w, "done")
	})), secure.PortTimeouts)
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served, drained, slow := make(chan error, 1), make(chan error, 1), make(chan string, 1)
	conns := secure.NewConnections(l, secure.Limits{}, klog.FromContext(t.Context()))
	go func() { served <- secure.Serve(srv, conns) }()
	fetch := func(path string) string {
		resp, err := http.Get("http://" + l.Addr().String() + path)
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return string(body)
	}
	go func() { slow <- fetch("/slow") }()
	<-started
	go func() { drained <- o.drain(t.Context(), h, conns, srv) }()
	for !h.draining.Load() {
		time.Sleep(time.Millisecond)
	}
	if got := fetch("/readyz"); !strings.Contains(got, "shutting down") {
		t.Errorf("Got %q, want readiness to fail at once", got)
	}
	if got := fetch("/fast"); got != "done" {
		t.Errorf("Got %q during the delay, want it answered", got)
	}
	if err := <-served; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Got %v from the server, want its listener closed", err)
	}
	select {
	case err := <-drained:
		t.Errorf("It was over (%v) although a request was in flight", err)
	default:
	}
	close(release)
	if got := <-slow; got != "done" {
		t.Errorf("Got %q for the request in flight, want it answered", got)
	}
	if err := <-drained; err != nil {
		t.Errorf("Draining: %v", err)
	}
}

// TestServerIsBounded checks the settings of the time-outs, because waiting for them would be slow.
func TestServerIsBounded(t *testing.T) {
	srv := secure.NewServer(t.Context(), http.NotFoundHandler(), secure.PortTimeouts)
	if srv.ReadHeaderTimeout <= 10*time.Second || srv.ReadTimeout <= 30*time.Second || srv.WriteTimeout <= srv.ReadTimeout || srv.IdleTimeout <= 0 || srv.MaxHeaderBytes <= 0 {
		t.Errorf("Got %+v, want time-outs beyond the 30 s that a webhook may take, and the 10 s of most", srv)
	}
}
