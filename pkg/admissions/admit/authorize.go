package admit

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// NewAuthorize returns an AuthorizeFunc that creates SubjectAccessReviews. An
// error says that the API server did not answer, never that it said no.
func NewAuthorize(client kubernetes.Interface) AuthorizeFunc {
	return func(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) (Decision, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: spec}
		review, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return Decision{}, fmt.Errorf("asking for a subject access review: %w", err)
		}
		return Decision{
			Allowed: review.Status.Allowed && !review.Status.Denied, Reason: review.Status.Reason, EvaluationError: review.Status.EvaluationError,
		}, nil
	}
}

// AccessReviewFor returns the review of what a user wants, with all that the API
// server knows of the user.
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
