package certs

import (
	"context"
	"errors"
)

// ErrNoCA is what Store.Load returns where no CA has been made yet.
var ErrNoCA = errors.New("there is no CA yet")

// Store keeps one CA for all replicas. A CA that is there but broken is an error that names the broken part,
// and is never replaced: a key that was lost by accident is not made good by one that no client trusts.
//
// A CA is replaced by writing to the store in three steps, each of which is a whole CA to those who read:
// the new certificate joins the bundle; once clients hold that bundle, the new certificate and key become
// those that sign; once nothing that the old key signed can be valid, the old certificate leaves the bundle.
// Readers need not know: an Authority publishes the bundle that it finds and renews its certificate when
// the signer is another one.
type Store interface {
	// Load reads the CA. The error is ErrNoCA if there is none.
	Load(ctx context.Context) (*CA, error)

	// Create keeps ca unless a CA is there already, and returns the CA that is there afterwards: whoever
	// comes second uses what the first one made.
	Create(ctx context.Context, ca *CA) (*CA, error)
}
