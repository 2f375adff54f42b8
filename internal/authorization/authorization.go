// Package authorization creates access reviews, which ask the API server whether it would allow a request. It
// implements the AuthorizeFunc of admit.Deps.
package authorization

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/postern-dev/postern/internal/reads"
	"github.com/postern-dev/postern/internal/shorttext"
	"github.com/postern-dev/postern/pkg/admit"
)

// maxText bounds the texts of a decision, in bytes. The API server names each binding of a missing role in them, and users
// with rights in a namespace can make thousands with long names. Decisions are cached.
const maxText = 4 << 10

// New returns an AuthorizeFunc that creates a SubjectAccessReview for each call. It returns an error if the API server
// does not answer. A review that does not allow the request is a Decision, never an error.
func New(client kubernetes.Interface) admit.AuthorizeFunc {
	return func(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) (admit.Decision, error) {
		end, err := reads.Call(ctx)
		if err != nil {
			return admit.Decision{}, fmt.Errorf("waiting to create a SubjectAccessReview: %w", err)
		}
		defer end()
		// A request may need a hundred reviews, of which little remains.
		ctx, endReading := reads.Scope(ctx)
		defer endReading()
		review := &authorizationv1.SubjectAccessReview{Spec: spec}
		review, err = client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return admit.Decision{}, fmt.Errorf("creating a SubjectAccessReview: %w", err)
		}
		return admit.Decision{
			Allowed: review.Status.Allowed && !review.Status.Denied,
			Reason:  shorttext.Of(review.Status.Reason, maxText), EvaluationError: shorttext.Of(review.Status.EvaluationError, maxText),
		}, nil
	}
}

// ReviewFor returns the access review of a user's request for a resource, with all fields of the user.
func ReviewFor(user authenticationv1.UserInfo, attributes *authorizationv1.ResourceAttributes) authorizationv1.SubjectAccessReviewSpec {
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
