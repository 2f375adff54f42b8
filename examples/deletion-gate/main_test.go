package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

const bound = 10 * time.Second

// testServer is a backend whose command appends a line to the file ran, and waits for the file go.
type testServer struct {
	dir    string
	url    string
	client *http.Client
}

const script = `echo "$GATE $POD_NAMESPACE/$POD_NAME $POD_UID $NODE_NAME" >> "$0/ran"
while [ ! -e "$0/go" ]; do sleep 0.05; done
if [ -e "$0/fail" ]; then echo first; echo "disk is full"; exit 3; fi`

// start starts a backend with the state of an earlier one in the same folder. It returns a func that stops it.
func start(t *testing.T, dir string) (*testServer, func()) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(dir, "ca.crt")); err != nil {
		if err := run(t.Context(), []string{"certificates", "--dir=" + dir, "--server=127.0.0.1"}, io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	p, err := newPreparations(ctx, filepath.Join(dir, "state"), []string{"sh", "-c", script, dir}, bound)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- serve(ctx, listener, files{cert: filepath.Join(dir, "server.crt"), key: filepath.Join(dir, "server.key"), clientCA: filepath.Join(dir, "ca.crt")}, p)
	}()
	var once sync.Once
	stop := func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("The backend ended: %v", err)
			}
		})
	}
	t.Cleanup(stop)
	return &testServer{dir: dir, url: "https://" + listener.Addr().String() + "/review", client: clientOf(t, dir, true)}, stop
}

func clientOf(t *testing.T, dir string, certificate bool) *http.Client {
	t.Helper()
	config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS13}
	ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	config.RootCAs.AppendCertsFromPEM(ca)
	if certificate {
		cert, err := tls.LoadX509KeyPair(filepath.Join(dir, "client.crt"), filepath.Join(dir, "client.key"))
		if err != nil {
			t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{cert}
	}
	transport := &http.Transport{TLSClientConfig: config}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func (s *testServer) post(t *testing.T, body string) (int, *response) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var r review
	if resp.StatusCode == http.StatusOK {
		if err := json.Unmarshal(text, &r); err != nil || r.Response == nil || r.APIVersion != apiVersion || r.Kind != kind {
			t.Fatalf("Got %s, %v, want a review", text, err)
		}
	}
	return resp.StatusCode, r.Response
}

func body(action, uid string) string {
	return `{"apiVersion": "` + apiVersion + `", "kind": "` + kind + `", "request": {"uid": "` + uid + `", "gate": "database", "action": "` + action +
		`", "pod": {"namespace": "shop", "name": "db-0", "nodeName": "node-1"}}}`
}

func (s *testServer) ask(t *testing.T, action, uid string, ready bool, message string) {
	t.Helper()
	code, r := s.post(t, body(action, uid))
	if code != http.StatusOK || r.UID != uid || r.Ready != ready || r.Message != message {
		t.Errorf("%s %s: got %d and %+v, want ready %t and %q", action, uid, code, r, ready, message)
	}
}

func (s *testServer) touch(t *testing.T, name string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// ran waits until the command has run so many times, and returns its lines.
func (s *testServer) ran(t *testing.T, times int) []string {
	t.Helper()
	var lines []string
	for end := time.Now().Add(bound); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		text, err := os.ReadFile(filepath.Join(s.dir, "ran"))
		if err == nil {
			lines = strings.Split(string(bytes.TrimSpace(text)), "\n")
		}
		if len(lines) == times {
			return lines
		}
	}
	t.Fatalf("Got the runs %q, want %d", lines, times)
	return nil
}

func (s *testServer) awaitState(t *testing.T, uid, state string) {
	t.Helper()
	for end := time.Now().Add(bound); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if p, err := read(filepath.Join(s.dir, "state", "database_"+uid+".json")); err == nil && p.State == state {
			return
		}
	}
	t.Fatalf("The preparation of %s is not %s within %v", uid, state, bound)
}

// TestOnce requests a preparation many times at once.
func TestOnce(t *testing.T) {
	s, _ := start(t, t.TempDir())
	s.ask(t, "Check", "one", false, "no preparation was requested")
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() { s.ask(t, "Prepare", "one", false, "the preparation is running") })
	}
	all.Wait()
	if got := s.ran(t, 1); got[0] != "database shop/db-0 one node-1" {
		t.Errorf("Got the environment %q", got)
	}
	s.touch(t, "go")
	s.awaitState(t, "one", done)
	s.ask(t, "Check", "one", true, "")
	s.ask(t, "Prepare", "one", true, "")
	s.ask(t, "Check", "two", false, "no preparation was requested")
	s.ran(t, 1)
}

// TestFailure runs a command that fails.
func TestFailure(t *testing.T) {
	s, _ := start(t, t.TempDir())
	s.touch(t, "go")
	s.touch(t, "fail")
	s.post(t, body("Prepare", "one"))
	s.awaitState(t, "one", failed)
	s.ask(t, "Check", "one", false, "the preparation failed: disk is full (exit status 3)")
	s.ask(t, "Prepare", "one", false, "the preparation failed: disk is full (exit status 3)")
	s.ran(t, 1)
}

// TestRestart ends the backend while a command runs and after another has ended.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	s, stop := start(t, dir)
	s.touch(t, "go")
	s.post(t, body("Prepare", "ended"))
	s.awaitState(t, "ended", done)
	if err := os.Remove(filepath.Join(dir, "go")); err != nil {
		t.Fatal(err)
	}
	s.post(t, body("Prepare", "interrupted"))
	s.ran(t, 2)
	stop()
	s, _ = start(t, dir)
	s.ask(t, "Check", "ended", true, "")
	s.ask(t, "Prepare", "interrupted", false, "the preparation is running")
	s.ran(t, 3)
	s.touch(t, "go")
	s.awaitState(t, "interrupted", done)
	s.ran(t, 3)
}

// TestTimeout ends a command that takes too long, and whose child keeps its output open.
func TestTimeout(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	dir := t.TempDir()
	// The child ends when the folder is removed, which is when the test ends.
	p, err := newPreparations(ctx, dir, []string{"sh", "-c", `while [ -e "$0" ]; do sleep 0.1; done & echo stuck; wait`, dir}, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	q := &request{UID: "one", Gate: "database"}
	if _, err := p.answer(q); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(bound); ; time.Sleep(50 * time.Millisecond) {
		r, err := p.answer(q)
		if err != nil || r.Ready || time.Now().After(end) {
			t.Fatalf("Got %+v, %v, want a failure within %v", r, err, bound)
		}
		if strings.HasPrefix(r.Message, "the preparation failed: stuck") {
			break
		}
	}
	q.UID = "two"
	if _, err := p.answer(q); err != nil {
		t.Fatal(err)
	}
	cancel()
	ended := make(chan struct{})
	go func() { p.wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(bound):
		t.Errorf("The backend waits for the child of a command")
	}
}

// TestInvalidRequests sends what is no review.
func TestInvalidRequests(t *testing.T) {
	s, _ := start(t, t.TempDir())
	for name, text := range map[string]string{
		"no JSON": "{", "no request": `{"apiVersion": "` + apiVersion + `", "kind": "` + kind + `"}`, "another kind": `{"kind": "Pod"}`,
		"a path": body("Prepare", "../one"), "no UID": body("Prepare", ""), "an action": body("Delete", "one"),
		"too much": `{"kind": "` + strings.Repeat("x", maxReview) + `"}`,
	} {
		if code, _ := s.post(t, text); code != http.StatusBadRequest {
			t.Errorf("%s: got code %d, want 400", name, code)
		}
	}
	s.client = clientOf(t, s.dir, false)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url, strings.NewReader(body("Prepare", "one")))
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := s.client.Do(req); err == nil {
		resp.Body.Close()
		t.Error("Got an answer without a client certificate")
	}
}

// TestMistakes starts the backend with wrong command lines.
func TestMistakes(t *testing.T) {
	for want, args := range map[string][]string{
		"want a command": nil, `unknown command "x"`: {"x"}, "--server is missing": {"certificates"}, "want --state": {"serve", "--", "true"},
		"certificate": {"serve", "--state=" + t.TempDir(), "--dir=" + t.TempDir(), "--address=127.0.0.1:0", "--", "true"},
	} {
		if err := run(t.Context(), args, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got the error %v, want %q", args, err, want)
		}
	}
}
