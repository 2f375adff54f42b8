package admit_test

import (
	"context"
	"errors"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/postern-dev/postern/internal/reads"
	"github.com/postern-dev/postern/pkg/admit"
)

// purse is an account with a size.
type purse struct {
	reads.Account

	size, held int64
	queued     bool
}

func (p *purse) Need(_ context.Context, n int64) error {
	if p.held+n > p.size {
		return reads.ErrHeld
	}
	p.held += n
	return nil
}

func (p *purse) Queued() { p.queued = true }

func (p *purse) Open() (reads.Account, func()) {
	before := p.held
	return p, func() { p.held = before }
}

func TestHold(t *testing.T) {
	a := &purse{size: 1 << 20}
	ctx := reads.NewContext(t.Context(), a)
	check := func(what string, err error, want int64) {
		t.Helper()
		if err != nil || a.held != want || a.queued {
			t.Errorf("%s: got %v, %d bytes held, want %d", what, err, a.held, want)
		}
	}
	r := &admit.Request{AdmissionRequest: &admissionv1.AdmissionRequest{
		Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Object: runtime.RawExtension{Raw: []byte(`{"metadata":{"name":"web"}}`)},
	}}
	check("a little growth", r.Grow(ctx, 10_000), 0)
	check("growth", r.Grow(ctx, 400_000), 400_000)
	if got := r.CopyMemory(); got != 410_000 {
		t.Errorf("A copy of a small pod that has grown takes %d bytes", got)
	}
	end, err := admit.Hold(ctx, 10_000)
	check("a little", err, 400_000)
	end()
	end, err = admit.Hold(ctx, 500_000)
	check("something", err, 900_000)
	end()
	check("the end", nil, 400_000)
	if _, err := admit.Hold(ctx, 700_000); !errors.Is(err, reads.ErrHeld) || a.held != 400_000 || !a.queued {
		t.Errorf("Got %v for more than there is, %d bytes held, want %v", err, a.held, reads.ErrHeld)
	}
	if err := r.Grow(ctx, 700_000); !errors.Is(err, reads.ErrHeld) {
		t.Errorf("Got %v for growth that is more than there is, want %v", err, reads.ErrHeld)
	}
	large := &admit.Request{AdmissionRequest: request(create, ordinaryPod(t, 1<<20), "")}
	if got := large.CopyMemory(); got < 1<<20 || got > 2<<20 {
		t.Errorf("A copy of a pod of 1 MiB takes %d bytes", got)
	}
}
