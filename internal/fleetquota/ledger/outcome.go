package ledger

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Outcome is how a demand was decided.
type Outcome string

const (
	// Within means that the allowance of the cluster was sufficient.
	Within Outcome = "local"
	// Claimed means that more was claimed from the hub.
	Claimed Outcome = "claimed"
	// Refused means that the demand does not fit.
	Refused Outcome = "refused"
)

// ShortError says that the hub has less left than was asked for.
type ShortError struct{ Free corev1.ResourceList }

// Error implements error.
func (e *ShortError) Error() string { return "the other clusters have claimed the rest" }

// AwayError says that the hub does not answer.
type AwayError struct {
	Since time.Time
	Err   error
}

// Error implements error.
func (e *AwayError) Error() string {
	return fmt.Sprintf("the hub has not answered since %s: %v", e.Since.UTC().Format(time.RFC3339), e.Err)
}

// Unwrap returns the error of the last call.
func (e *AwayError) Unwrap() error { return e.Err }

// IsShortOrAway reports whether an error says why a demand was refused. Any other error means that the demand could not be
// decided.
func IsShortOrAway(err error) bool {
	var short *ShortError
	var away *AwayError
	return errors.As(err, &short) || errors.As(err, &away)
}
