package deletiongate

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	deletionv1alpha1 "github.com/postern-dev/postern/pkg/apis/deletion/v1alpha1"
)

// TestASlotTakesNoTimeOfTheBackend has other requests use all slots of the backend for longer than its timeout. Any user can send
// them. If the wait counted, a backend that was hardly asked would fail, and its failure policy could open the gate.
func TestASlotTakesNoTimeOfTheBackend(t *testing.T) {
	const timeout = 200 * time.Millisecond
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"apiVersion": "deletion.postern.dev/v1alpha1", "kind": "DeletionReview", "response": {"uid": "u", "message": "no"}}`)
	}))
	defer s.Close()
	b := newBackend(s.Client(), s.URL, timeout, true)
	for range maxConcurrent {
		b.slots <- struct{}{}
	}
	ended := make(chan error, 1)
	go func() {
		_, err := b.ask(t.Context(), &deletionv1alpha1.Request{UID: "u"})
		ended <- err
	}()
	time.AfterFunc(2*timeout, func() { <-b.slots })
	if err := <-ended; err != nil {
		t.Errorf("Got %v, want an answer", err)
	}

	b.slots <- struct{}{}
	ctx, cancel := context.WithTimeout(t.Context(), timeout/2)
	defer cancel()
	if _, err := b.ask(ctx, &deletionv1alpha1.Request{UID: "u"}); !errors.Is(err, errNoTime) {
		t.Errorf("Got %v, want an error that is no failure of the backend", err)
	}
}
