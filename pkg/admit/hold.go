package admit

import (
	"context"
	"fmt"

	"github.com/postern-dev/postern/internal/objects"
	"github.com/postern-dev/postern/internal/reads"
)

// unheld is how many bytes of memory a plugin may need without holding them. The estimate that the router reserves for a small
// object is larger than the object by more than that.
const unheld = 16 << 10

// Grow holds the memory of n bytes that the plugin adds to the object, until the request ends. The router has reserved the
// memory of the object as it arrived, and of one copy. Grow waits a moment for memory that other requests hold. If they keep it,
// it returns an error with which the plugin must end, and the request is denied.
func (r *Request) Grow(ctx context.Context, n int64) error {
	r.grown += n
	return need(ctx, n)
}

// CopyMemory returns the memory in bytes of a copy of the object with what plugins added to it, or less for a small object.
func (r *Request) CopyMemory() int64 { return objects.CopyMemory(r.AdmissionRequest) + r.grown }

// Hold is Grow for n bytes that a plugin needs until it calls end.
func Hold(ctx context.Context, n int64) (end func(), err error) {
	if n <= unheld {
		return func() {}, nil
	}
	ctx, end = reads.Scope(ctx)
	if err := need(ctx, n); err != nil {
		end()
		return nil, err
	}
	return end, nil
}

func need(ctx context.Context, n int64) error {
	if n <= unheld {
		return nil
	}
	if err := reads.Need(ctx, n); err != nil {
		return fmt.Errorf("holding memory for what a plugin makes of the object: %w", err)
	}
	return nil
}
