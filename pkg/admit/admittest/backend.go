package admittest

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
)

// backendPlaceholder stands in a configuration for the path of a kubeconfig for the backend.
const backendPlaceholder = "{backend}"

// Answer is one answer of the backend that a plugin asks.
type Answer struct {
	// Wants is the body that the plugin must send. An absent Wants matches any body.
	Wants json.RawMessage `json:"wants"`
	// Code is the HTTP status code. It defaults to 200. Header has additional headers of the answer.
	Code   int               `json:"code"`
	Header map[string]string `json:"header"`
	// Body is a document, or a string with its text.
	Body json.RawMessage `json:"body"`
}

// Backend is an HTTPS server that gives the answers of a case, in order.
type Backend struct {
	server *httptest.Server
	dir    string

	mu       sync.Mutex
	answers  []Answer
	problems []string
}

func newBackend(answers []Answer) (*Backend, error) {
	dir, err := os.MkdirTemp("", "admittest-backend-")
	if err != nil {
		return nil, fmt.Errorf("making the folder of the backend: %w", err)
	}
	b := &Backend{dir: dir, answers: answers}
	b.server = httptest.NewTLSServer(b)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: b.server.Certificate().Raw})
	kubeconfig, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "backend",
		"clusters": []any{map[string]any{"name": "backend", "cluster": map[string]any{
			"server": b.server.URL + "/review", "certificate-authority-data": ca,
		}}},
		"contexts": []any{map[string]any{"name": "backend", "context": map[string]any{"cluster": "backend"}}},
	})
	if err == nil {
		err = os.WriteFile(b.kubeconfig(), kubeconfig, 0o600)
	}
	if err != nil {
		b.Close()
		return nil, fmt.Errorf("writing the kubeconfig of the backend: %w", err)
	}
	return b, nil
}

func (b *Backend) kubeconfig() string { return filepath.Join(b.dir, "kubeconfig") }

// ServeHTTP gives the next answer.
func (b *Backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	switch {
	case err != nil:
		b.problems = append(b.problems, fmt.Sprintf("The backend could not read a request: %v", err))
	case len(b.answers) == 0:
		b.problems = append(b.problems, fmt.Sprintf("The backend got a request that it has no answer for: %s", body))
		w.WriteHeader(http.StatusNotFound)
		return
	}
	a := b.answers[0]
	b.answers = b.answers[1:]
	if a.Wants != nil {
		if diff := diffJSON(body, a.Wants); diff != "" {
			b.problems = append(b.problems, "The request to the backend differs (- got, + want):\n"+diff)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	for name, value := range a.Header {
		w.Header().Set(name, value)
	}
	if a.Code != 0 {
		w.WriteHeader(a.Code)
	}
	_, _ = w.Write(textOf(a.Body))
}

// Problems returns what was wrong with the requests so far, and the answers that nobody asked for.
func (b *Backend) Problems() []string {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.answers); n > 0 {
		return append(b.problems, fmt.Sprintf("The backend still has %d answers", n))
	}
	return b.problems
}

// Close stops the backend and removes its files.
func (b *Backend) Close() {
	if b == nil {
		return
	}
	b.server.Close()
	_ = os.RemoveAll(b.dir)
}

// config returns the configuration with the path of the kubeconfig.
func (b *Backend) config(config []byte) []byte {
	if b == nil {
		return config
	}
	return bytes.ReplaceAll(config, []byte(backendPlaceholder), []byte(b.kubeconfig()))
}

// textOf returns the text of a field that is a document or a string.
func textOf(raw json.RawMessage) []byte {
	var text string
	if err := json.Unmarshal(raw, &text); err == nil {
		return []byte(text)
	}
	return raw
}
