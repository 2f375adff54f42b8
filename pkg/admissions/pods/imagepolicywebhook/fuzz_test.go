package imagepolicywebhook_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// FuzzAnswer requires that no answer causes a panic, and that a pod is admitted only by an answer that says so.
func FuzzAnswer(f *testing.F) {
	f.Add(200, "application/json", yes)
	f.Add(200, "application/json", no)
	f.Add(200, "text/html", "<html>")
	f.Add(200, "", "status: {allowed: true}")
	f.Add(204, "application/json", "")
	f.Add(403, "text/plain", "no")
	f.Add(200, "application/json", `{"kind": "Status", "apiVersion": "v1", "status": "Success"}`)
	f.Add(200, "application/json", `{"kind": "ImageReview", "apiVersion": "imagepolicy.k8s.io/v1", "status": {"allowed": true}}`)
	f.Add(200, "application/vnd.kubernetes.protobuf", "k8s\x00")
	type reply struct {
		code       int
		kind, body string
	}
	var next atomic.Pointer[reply]
	f.Fuzz(func(t *testing.T, code int, kind, body string) {
		if code < 200 || code > 599 || code == http.StatusInternalServerError || code == http.StatusGatewayTimeout || code == http.StatusTooManyRequests {
			t.Skip("the server cannot send it, or the plugin repeats the request")
		}
		next.Store(&reply{code, kind, body})
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			r := next.Load()
			w.Header().Set("Content-Type", r.kind)
			w.WriteHeader(r.code)
			_, _ = w.Write([]byte(r.body))
		})
		err := s.plugin(t, "allowTTL: -1, denyTTL: -1")(within(t, 10*time.Second), podWith("a"))
		if err == nil && (code >= 300 || !strings.Contains(strings.ToLower(body), "allowed")) {
			t.Errorf("The answer %d %q admits the pod", code, body)
		}
	})
}
