package authorization_test

import (
	"errors"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/postern-dev/postern/internal/authorization"
	"github.com/postern-dev/postern/pkg/admit"
)

func TestNewReturnsTheWholeStatus(t *testing.T) {
	for name, tc := range map[string]struct {
		status authorizationv1.SubjectAccessReviewStatus
		want   admit.Decision
	}{
		"allowed":     {authorizationv1.SubjectAccessReviewStatus{Allowed: true}, admit.Decision{Allowed: true}},
		"denied wins": {authorizationv1.SubjectAccessReviewStatus{Allowed: true, Denied: true}, admit.Decision{}},
		"an evaluation error": {
			authorizationv1.SubjectAccessReviewStatus{Reason: "because", EvaluationError: "boom"},
			admit.Decision{Reason: "because", EvaluationError: "boom"},
		},
		"long texts": {
			authorizationv1.SubjectAccessReviewStatus{Reason: strings.Repeat("r", 4<<10), EvaluationError: strings.Repeat("e", 4<<10-1) + "ü"},
			admit.Decision{Reason: strings.Repeat("r", 4<<10), EvaluationError: strings.Repeat("e", 4<<10-1) + " ..."},
		},
	} {
		t.Run(name, func(t *testing.T) {
			client := &fake.Clientset{}
			client.AddReactor("create", "subjectaccessreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, &authorizationv1.SubjectAccessReview{Status: tc.status}, nil
			})
			got, err := authorization.New(client)(t.Context(), authorizationv1.SubjectAccessReviewSpec{})
			if err != nil || got != tc.want {
				t.Errorf("Got %+v, %v; want %+v", got, err, tc.want)
			}
		})
	}
}

func TestNewReturnsAnErrorIfTheAPIServerDoesNotAnswer(t *testing.T) {
	away := errors.New("away")
	client := &fake.Clientset{}
	client.AddReactor("create", "subjectaccessreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, away
	})
	if _, err := authorization.New(client)(t.Context(), authorizationv1.SubjectAccessReviewSpec{}); !errors.Is(err, away) {
		t.Errorf("Got %v, want %v", err, away)
	}
}
