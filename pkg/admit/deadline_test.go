package admit_test

import (
	"context"
	"strings"
	"testing"

	"github.com/postern-dev/postern/pkg/admit"
)

// TestDecodingStopsAtTheDeadline sends a request after its deadline. Its objects must not be
// decoded.
func TestDecodingStopsAtTheDeadline(t *testing.T) {
	rec := &recorder{}
	s := service(t, rec.plugin("P", nil, admit.On("pods", update)))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	resp := s.Validate(ctx, request(update, "not JSON", "not JSON"))
	if resp.Allowed || resp.Result == nil || !strings.Contains(resp.Result.Message, "request.object was not decoded: context canceled") {
		t.Errorf("Got %+v, want a failure that names the deadline", resp)
	}
	if len(rec.ran) > 0 {
		t.Errorf("Got %v run, want no plugin", rec.ran)
	}
}
