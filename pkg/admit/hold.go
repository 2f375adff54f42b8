package admit

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/postern-dev/postern/internal/objects"
	"github.com/postern-dev/postern/internal/reads"
)

// unheld is how many bytes of memory a plugin may need without holding them. The router reserves that much more than a small
// object takes.
const unheld = 16 << 10

// Hold holds n bytes of memory until the request ends. It is for what a plugin makes of the objects of the request, if users
// can make it long: the router reserves only the memory of these objects and of one copy. Hold waits a moment for memory that other requests
// hold, and returns an error if they keep it. It returns a Denial with code 413 if n is more than one request may have.
func Hold(ctx context.Context, n int64) error {
	if n <= unheld {
		return nil
	}
	err := reads.Hold(ctx, n)
	switch {
	case errors.Is(err, reads.ErrTooLarge):
		return Deny(apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
			"what the plugins make of the object takes %d MiB of memory, which is more than one request may have", n>>20)))
	case err != nil:
		return fmt.Errorf("holding memory for the changes of a plugin: %w", err)
	}
	return nil
}

// HoldCopies is Hold for n copies of the object that a plugin makes.
func HoldCopies(ctx context.Context, r *Request, n int64) error {
	return Hold(ctx, n*objects.CopyMemory(r.AdmissionRequest))
}
