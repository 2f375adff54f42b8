package admit

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"
)

// AuthorizeFunc asks the API server whether it would allow a request. An error
// means that the API server did not answer.
type AuthorizeFunc func(context.Context, authorizationv1.SubjectAccessReviewSpec) (Decision, error)

// Decision is the answer to an access review.
type Decision struct {
	// Allowed is true if the API server would allow the request.
	Allowed bool
	// Reason is the reason of the authorizer, or "".
	Reason string
	// EvaluationError reports the error of an authorizer in the API server. Another
	// authorizer may have decided all the same.
	EvaluationError string
}
