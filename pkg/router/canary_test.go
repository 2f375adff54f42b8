package router_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/postern-dev/postern/pkg/router"
)

// TestCanary checks that a router answers its own canary, and has the API server try the next replica for those of others.
func TestCanary(t *testing.T) {
	r, err := router.New(nil, nil, router.WithSegments(func() []string { return []string{"secret"} }))
	if err != nil {
		t.Fatal(err)
	}
	other, err := router.New(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.CanaryPath() == other.CanaryPath() || len(r.CanaryPath()) < len("/canary/")+20 {
		t.Errorf("Got the paths %s and %s, want one for each router", r.CanaryPath(), other.CanaryPath())
	}
	segment := "/secret"
	for _, tt := range []struct {
		path     string
		code     int
		answered bool
	}{
		{segment + r.CanaryPath() + "/validate", http.StatusOK, true},
		{segment + other.CanaryPath() + "/validate", http.StatusServiceUnavailable, false},
		{segment + r.CanaryPath() + "/mutate", http.StatusServiceUnavailable, false},
		{segment + "/canary/validate", http.StatusServiceUnavailable, false}, // That of an earlier version.
		{segment + "/canary", http.StatusNotFound, false},
		{segment + "/canaries/validate", http.StatusNotFound, false},
		{r.CanaryPath() + "/validate", http.StatusNotFound, false},
	} {
		if r.Serves(tt.path) {
			t.Errorf("%s: got a service", tt.path)
		}
		body := review(t, "u")
		w := exchangeBody(t, r, tt.path, bytes.NewReader(body), len(body))
		if w.code != tt.code {
			t.Errorf("%s: got %d %s, want %d", tt.path, w.code, w.body, tt.code)
		}
		if closes := w.header.Get("Connection") == "close"; closes != (tt.code != http.StatusOK) {
			t.Errorf("%s: got %v, want the connection closed unless the call has arrived", tt.path, w.header)
		}
		if again := w.header.Get("Retry-After") == "0"; again != (tt.code == http.StatusServiceUnavailable) {
			t.Errorf("%s: got %v, want the next replica tried at once for a canary", tt.path, w.header)
		}
		if answered := strings.Contains(w.body, router.CanaryAnswer("web")); answered != tt.answered || answered && !strings.Contains(w.body, `"allowed":false`) {
			t.Errorf("%s: got %s, want the answer of the canary: %v", tt.path, w.body, tt.answered)
		}
	}
}

func TestCanaryIsNotAService(t *testing.T) {
	for _, path := range []string{"/canary", "/canary/x"} {
		s := service(allow)
		s.Path = path
		if _, err := router.New([]router.AdmissionService{s}, nil); err == nil || !strings.Contains(err.Error(), "the path is taken") {
			t.Errorf("%s: got %v, want that the path is taken", path, err)
		}
	}
}
