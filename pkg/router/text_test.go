package router_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// marked returns a review whose object names its uid. Reviews with uids of one length have one length.
func marked(t *testing.T, uid string) []byte {
	t.Helper()
	return encode(t, &admissionv1.AdmissionRequest{
		UID: types.UID(uid), Operation: admissionv1.Create, Name: "web", Namespace: "ns", Object: runtime.RawExtension{Raw: []byte(object(uid))},
	})
}

func object(uid string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"text":%q}}`, uid, strings.Repeat(uid, 500))
}

// sendMarked sends n reviews with different uids.
func sendMarked(t *testing.T, s *server, n int) {
	t.Helper()
	for i := range n {
		uid := fmt.Sprintf("uid-%04d", i)
		if a := s.send(t, http.MethodPost, "/pods/mutate", bytes.NewReader(marked(t, uid))); a.code != http.StatusOK || !strings.Contains(a.body, uid) {
			t.Fatalf("Got %d %s for %s, want 200", a.code, a.body, uid)
		}
	}
}

// TestTextIsKept covers a service that keeps the text of a request. Later requests must not change it.
func TestTextIsKept(t *testing.T) {
	kept := map[string][]byte{}
	s := serve(t, service(func(_ context.Context, ar *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		kept[string(ar.UID)] = ar.Object.Raw
		return &admissionv1.AdmissionResponse{Allowed: true}
	}))
	sendMarked(t, s, 100)
	if len(kept) != 100 {
		t.Errorf("Got %d requests, want 100", len(kept))
	}
	for uid, text := range kept {
		if string(text) != object(uid) {
			t.Errorf("The text of %s is now %s", uid, text)
		}
	}
}

// TestTextOutlivesTheAnswer covers an AdmitFunc that runs past its deadline. Its text must stay the same until it
// returns, while other requests are served.
func TestTextOutlivesTheAnswer(t *testing.T) {
	release, text := make(chan struct{}), make(chan string)
	s := serve(t, service(func(_ context.Context, ar *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		if ar.UID == "uid-late" {
			<-release
			text <- string(ar.Object.Raw)
		}
		return &admissionv1.AdmissionResponse{Allowed: true}
	}))
	if a := s.send(t, http.MethodPost, "/pods/mutate?timeout=100ms", bytes.NewReader(marked(t, "uid-late"))); a.code != http.StatusGatewayTimeout {
		t.Errorf("Got %d %s, want 504", a.code, a.body)
	}
	sendMarked(t, s, 100)
	close(release)
	if got := <-text; got != object("uid-late") {
		t.Errorf("The text of the late request is now %s", got)
	}
}

// TestMemoryAfterRejections sends bodies that are rejected after they were read, each before one that is not.
func TestMemoryAfterRejections(t *testing.T) {
	s := serve(t, service(allow))
	for i := range 50 {
		body := marked(t, fmt.Sprintf("uid-%04d", i))
		a := s.send(t, http.MethodPost, "/pods/mutate", bytes.NewReader(body[:len(body)-1]))
		if got := response(t, a, fmt.Sprintf("uid-%04d", i)); got.Allowed || !strings.Contains(got.Result.Message, "not an AdmissionReview") {
			t.Fatalf("Got %s, want a denial", a.body)
		}
		s.admit(t, "/pods/mutate", "u-1")
	}
}
