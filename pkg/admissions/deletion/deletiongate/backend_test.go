package deletiongate_test

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/pkg/admit/admittest"
	deletionv1alpha1 "github.com/postern-dev/postern/pkg/apis/deletion/v1alpha1"
)

// TestBackendsThatDoNotAnswer has backends that send anything but an answer. The gate stays closed, in time.
func TestBackendsThatDoNotAnswer(t *testing.T) {
	var followed atomic.Int64
	other := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Add(1) }))
	t.Cleanup(other.Close)
	const ready = `{"apiVersion": "deletion.postern.dev/v1alpha1", "kind": "DeletionReview", "response": {"uid": "6ba7b810", "ready": true}}`
	text := func(s string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, s) }
	}
	raw := func(head, more string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			for _, err = conn.Write([]byte(head)); err == nil && more != ""; {
				_, err = conn.Write([]byte(strings.Repeat(more, 1000)))
			}
		}
	}
	for name, handler := range map[string]http.HandlerFunc{
		"nothing": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"half an answer": func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, ready[:len(ready)-1])
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		},
		"the end of the connection": raw("", ""),
		"endless headers":           raw("HTTP/1.1 200 OK\r\n", "X-More: of the same\r\n"),
		"an endless body":           raw("HTTP/1.1 200 OK\r\nContent-Length: 1099511627776\r\n\r\n", " "),
		"a bomb": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			for range 1 << 10 {
				if _, err := z.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		},
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		},
		"a web page":        text("<html>"),
		"an empty document": text("{}"),
		"another kind":      text(strings.ReplaceAll(ready, "DeletionReview", "AdmissionReview")),
		"another version":   text(strings.ReplaceAll(ready, "v1alpha1", "v1")),
		"another pod":       text(strings.ReplaceAll(ready, "6ba7b810", "6ba7b811")),
		"no response":       text(`{"apiVersion": "deletion.postern.dev/v1alpha1", "kind": "DeletionReview", "response": null}`),
		"a text for ready":  text(strings.ReplaceAll(ready, "true", `"true"`)),
		"code 202":          func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted); fmt.Fprint(w, ready) },
		"code 503":          func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &backend{Server: httptest.NewTLSServer(handler)}
			t.Cleanup(b.CloseClientConnections)
			c := newCluster(t, b.config(t, ""), thePod())
			start := time.Now()
			if s := remove(admittest.Context(t), t, c.replica(t), c.pod(t), "alice"); s == nil || s.Code != http.StatusTooManyRequests || !strings.Contains(s.Message, "the backend of the gate does not answer") {
				t.Errorf("Got %v, want a refusal because the backend does not answer", s)
			}
			if took := time.Since(start); took > wait {
				t.Errorf("It took %v", took)
			}
			if r := c.record(t); r.Started != nil || r.Failed == nil {
				t.Errorf("Got the record %+v, want a failure", r)
			}
		})
	}
	t.Cleanup(func() {
		if followed.Load() > 0 {
			t.Error("The review was sent to another server")
		}
	})
}

// TestMessagesAreBounded has a backend that answers with a message of the largest size, in many lines.
func TestMessagesAreBounded(t *testing.T) {
	b := &backend{Server: httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(deletionv1alpha1.DeletionReview{
			TypeMeta: metav1.TypeMeta{APIVersion: deletionv1alpha1.APIVersion, Kind: deletionv1alpha1.Kind}, Response: &deletionv1alpha1.Response{UID: "6ba7b810", Message: strings.Repeat("é\r\n\x1b", 5_000)},
		})
	}))}
	t.Cleanup(b.Close)
	c := newCluster(t, b.config(t, ""), thePod())
	s := remove(admittest.Context(t), t, c.replica(t), c.pod(t), "alice")
	if s == nil || len(s.Message) > 400 || strings.ContainsAny(s.Message, "\r\n\x1b") || !strings.HasSuffix(s.Message, "...") {
		t.Errorf("Got %v, want a refusal with a short message in one line", s)
	}
}
