package ledger

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Outcome is the result of a demand, as the metrics name it.
type Outcome string

const (
	// Within means that the allowance of the cluster sufficed.
	Within Outcome = "local"
	// Claimed means that the cluster claimed a larger allowance from the hub.
	Claimed Outcome = "claimed"
	// Refused means that the limit of the quota does not suffice.
	Refused Outcome = "refused"
	// Full means that the account has no room for another entry.
	Full Outcome = "full"
)

// ShortError is returned if the hub has less than the missing amount. Free is the unclaimed part of the limit.
type ShortError struct{ Free corev1.ResourceList }

// Error implements error.
func (e *ShortError) Error() string { return "the other clusters have claimed the rest" }

// AwayError is returned while the hub does not answer.
type AwayError struct {
	Since time.Time
	Err   error
}

// Error implements error.
func (e *AwayError) Error() string {
	return fmt.Sprintf("the hub has not answered since %s: %v", e.Since.UTC().Format(time.RFC3339), e.Err)
}

// Unwrap returns the error of the last call to the hub.
func (e *AwayError) Unwrap() error { return e.Err }

// ErrUncounted is returned if an account has no room for another entry. Whoever sends many requests can fill it, so it is
// the reason of a denial.
var ErrUncounted = errors.New("too many requests are admitted that the caches do not show yet")

// IsShortOrAway reports whether an error says that the limit does not suffice, or that more cannot be claimed now.
func IsShortOrAway(err error) bool {
	var short *ShortError
	var away *AwayError
	return errors.As(err, &short) || errors.As(err, &away)
}
