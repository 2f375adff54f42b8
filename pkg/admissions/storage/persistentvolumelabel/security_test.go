package persistentvolumelabel_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/pkg/admissions/storage/persistentvolumelabel"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

// TestRedirects covers an endpoint that redirects the request, even to another path of the same server.
func TestRedirects(t *testing.T) {
	var asked atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = io.WriteString(w, `{"zone": "a"}`)
	}))
	defer other.Close()
	for _, location := range []string{other.URL, "/elsewhere"} {
		for _, code := range []int{301, 302, 303, 307, 308} {
			first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/" {
					asked.Add(1)
				}
				http.Redirect(w, r, location, code)
			}))
			check(t, creating("url: "+first.URL+"/", fails(fmt.Sprintf("the endpoint answers %d, want 200, 204 or 404", code))))
			first.Close()
		}
	}
	if got := asked.Load(); got != 0 {
		t.Errorf("Got %d questions after redirects, want none", got)
	}
}

// TestTLS checks which servers may answer and receive the token.
func TestTLS(t *testing.T) {
	tokens := make(chan string, 2)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tokens <- r.Header.Get("Authorization")
		_, _ = io.WriteString(w, `{"zone": "a"}`)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	ca := write(t, "ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
	token := write(t, "token", "one\n")

	c := parse(t, creating("ttl: 0s, url: "+s.URL+", caFile: "+ca+", tokenFile: "+token, inA))
	server, err := c.Serve(admittest.Context(t), persistentvolumelabel.Plugin)
	if err != nil {
		t.Fatalf("Serving the case: %v", err)
	}
	defer server.Close()
	for _, want := range []string{"one", "two"} {
		if err := os.WriteFile(token, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := server.Play(t.Context(), c, &c.Steps[0].Request)
		if err != nil {
			t.Fatalf("Creating the volume: %v", err)
		}
		for _, problem := range c.Steps[0].Want.Differences(got) {
			t.Error(problem)
		}
		if got := received(t, tokens); got != "Bearer "+want {
			t.Errorf("Got authorization %q, want that of token %s", got, want)
		}
	}
	if err := os.WriteFile(token, []byte("two\nlines"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := server.Play(t.Context(), c, &c.Steps[0].Request)
	if err != nil || got.Failure == nil || len(tokens) > 0 {
		t.Errorf("Got %v, %v, with a token of two lines; want a failure", got, err)
	}

	// The system does not know the test's CA.
	check(t, creating("url: "+s.URL, fails("asking the endpoint: tls: failed to verify certificate: x509: certificate signed by unknown authority")))
	if len(tokens) > 0 {
		t.Error("Got a question to a server that nobody vouches for")
	}
	check(t, "config: {endpoint: {url: "+s.URL+", caFile: "+token+"}}\nwant: {configError: 'endpoint.caFile: there is no certificate in "+token+"'}")
	check(t, "config: {endpoint: {url: "+s.URL+", tokenFile: "+token+"}}\nwant: {configError: 'endpoint.tokenFile: reading the token: want one line in "+token+"'}")
}

// TestSilence covers an endpoint that does not answer.
func TestSilence(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	c := parse(t, creating("url: "+gone.URL, `{failure: 500}`))
	for _, problem := range c.Check(admittest.Context(t), persistentvolumelabel.Plugin) {
		t.Error(problem)
	}
	check(t, creating("onError: Ignore, url: "+gone.URL, unlabeled))

	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer s.Close()
	check(t, creating("timeout: 20ms, url: "+s.URL, `{failure: 504}`))
	check(t, creating("timeout: 20ms, onError: Ignore, url: "+s.URL, unlabeled))
}

// TestDeadlineOfTheRequest covers a request whose deadline ends before the timeout of the endpoint. Postern
// must not admit it late, even if errors are ignored.
func TestDeadlineOfTheRequest(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer s.Close()
	c := parse(t, creating("timeout: 30s, onError: Ignore, url: "+s.URL, unlabeled))
	server, err := c.Serve(admittest.Context(t), persistentvolumelabel.Plugin)
	if err != nil {
		t.Fatalf("Serving the case: %v", err)
	}
	defer server.Close()
	ar, err := c.Steps[0].Request.Admission()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(admittest.Context(t), 20*time.Millisecond)
	defer cancel()
	if got := server.Service.Mutate(ctx, ar); got.Allowed || got.Result.Code != http.StatusGatewayTimeout {
		t.Errorf("Got %+v, want a code of %d", got, http.StatusGatewayTimeout)
	}
}

// write writes a file and returns its name.
func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
