package admit

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
)

// AuthorizeFunc asks the API server whether it would allow a request. An error
// means that the API server did not answer.
type AuthorizeFunc func(context.Context, authorizationv1.SubjectAccessReviewSpec) (Decision, error)

// Decision is the answer to an access review.
type Decision struct {
	Allowed bool
	Reason  string
	// EvaluationError reports the error of an authorizer in the API server. Another
	// authorizer may have decided all the same.
	EvaluationError string
}

// AccessReviewFor returns the access review of a user's request for a resource. It
// carries everything that the API server knows about the user.
func AccessReviewFor(user authenticationv1.UserInfo, attributes *authorizationv1.ResourceAttributes) authorizationv1.SubjectAccessReviewSpec {
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, ResourceAttributes: attributes,
	}
	if len(user.Extra) > 0 {
		spec.Extra = make(map[string]authorizationv1.ExtraValue, len(user.Extra))
		for k, v := range user.Extra {
			spec.Extra[k] = authorizationv1.ExtraValue(v)
		}
	}
	return spec
}
