package backend_test

import (
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/postern-dev/postern/internal/backend"
)

func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestNewClient has a server that redirects, and one that sends more or less than the limit of 10 bytes and two for each byte
// that it got.
func TestNewClient(t *testing.T) {
	var tokens []string
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tokens = append(tokens, r.Header.Get("Authorization"))
		if r.URL.Path == "/redirect" {
			w.Header().Set("Retry-After", "0")
			http.Redirect(w, r, "/", http.StatusTemporaryRedirect)
			return
		}
		_, _ = io.WriteString(w, strings.Repeat("x", 14))
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	ca := write(t, "ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
	token := write(t, "token", "one\n")
	config := &rest.Config{Host: s.URL, BearerTokenFile: token, TLSClientConfig: rest.TLSClientConfig{CAFile: ca}}
	client, err := backend.NewClient(config, backend.Limit{Bytes: 10, PerByteSent: 2})
	if err != nil {
		t.Fatal(err)
	}
	post := func(path, body string) (*http.Response, error) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		_, err = io.ReadAll(resp.Body)
		return resp, err
	}
	if _, err := post("/", "12"); err != nil {
		t.Errorf("Got %v for an answer of the largest size", err)
	}
	if err := os.WriteFile(token, []byte("two"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := post("/", "1"); err == nil || err.Error() != "the answer is too large: it has more than 12 bytes" {
		t.Errorf("Got %v for an answer that is too large", err)
	}
	if resp, _ := post("/redirect", "12"); resp.StatusCode != http.StatusTemporaryRedirect || resp.Header.Get("Retry-After") != "1" {
		t.Errorf("Got %d with %v, want the redirect and a pause", resp.StatusCode, resp.Header)
	}
	if got := strings.Join(tokens, ","); got != "Bearer one,Bearer two,Bearer two" {
		t.Errorf("Got the tokens %s", got)
	}
}

// TestMistakesStopTheStart has files that cannot work. A client must not find that out when it connects.
func TestMistakesStopTheStart(t *testing.T) {
	empty, lines := write(t, "empty", " "), write(t, "lines", "one\ntwo")
	for want, config := range map[string]rest.Config{
		"open /nowhere/ca.crt: no such file or directory":                   {TLSClientConfig: rest.TLSClientConfig{CAFile: "/nowhere/ca.crt"}},
		"there is no certificate in " + empty:                               {TLSClientConfig: rest.TLSClientConfig{CAFile: empty}},
		"a client certificate needs a certificate and a key":                {TLSClientConfig: rest.TLSClientConfig{KeyFile: empty}},
		"client certificate " + empty + " with key " + lines + ": tls: ":    {TLSClientConfig: rest.TLSClientConfig{CertFile: empty, KeyFile: lines}},
		"reading the token: open /nowhere/token: no such file or directory": {BearerTokenFile: "/nowhere/token"},
		"reading the token: want one line in " + lines:                      {BearerTokenFile: lines},
		"reading the token: want one line in " + empty:                      {BearerTokenFile: empty},
	} {
		config.Host = "https://example.com"
		if _, err := backend.NewClient(&config, backend.Limit{}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("Got %v, want %s", err, want)
		}
	}
}
