package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestHook(t *testing.T) {
	for name, test := range map[string]struct {
		path, body, patch  string
		mutated, validated bool
	}{
		"a pod is rewound": {
			path: "/mutate", body: `{"request": {"uid": "u", "object": {"kind": "Pod", "spec": {"containers": [{}, {}]}}}}`,
			patch: `[{"op": "add", "path": "/spec/containers/0/imagePullPolicy", "value": "IfNotPresent"},` +
				`{"op": "add", "path": "/spec/containers/1/imagePullPolicy", "value": "IfNotPresent"}]`,
		},
		"a marker is noted":         {path: "/mutate", body: `{"request": {"uid": "u", "object": {"kind": "ConfigMap"}}}`, mutated: true},
		"a marker is noted at last": {path: "/validate", body: `{"request": {"uid": "u", "object": {"kind": "ConfigMap"}}}`, validated: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := &hook{}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, test.path, strings.NewReader(test.body)))
			var got struct {
				Response struct {
					UID     string
					Allowed bool
					Patch   []byte
				}
			}
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatalf("Reading %s: %v", w.Body, err)
			}
			if r := got.Response; r.UID != "u" || !r.Allowed || string(r.Patch) != test.patch {
				t.Errorf("Got the answer %+v with the patch %s, want the uid u, allowed, and the patch %s", r, r.Patch, test.patch)
			}
			if h.mutated.Load() != test.mutated || h.validated.Load() != test.validated {
				t.Errorf("Noted %v and %v, want %v and %v", h.mutated.Load(), h.validated.Load(), test.mutated, test.validated)
			}
		})
	}
}

func TestHookRefusesNonsense(t *testing.T) {
	for _, body := range []string{"", "{}", "[]"} {
		w := httptest.NewRecorder()
		(&hook{}).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/mutate", strings.NewReader(body)))
		if w.Code != http.StatusBadRequest {
			t.Errorf("Got the status %d for %q, want 400", w.Code, body)
		}
	}
}
