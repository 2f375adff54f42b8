package authorization_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/postern-dev/postern/internal/authorization"
	"github.com/postern-dev/postern/internal/reads"
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

// account counts the calls of a request. If refused is true, none may be made.
type account struct {
	reads.Detached
	refused      bool
	calls, ended int
	// scopes is how many scopes began, and over how many of them ended.
	scopes, over int
}

func (a *account) Open() (other reads.Account, end func()) {
	a.scopes++
	return a, func() { a.over++ }
}

func (a *account) Call(context.Context) (end func(), err error) {
	if a.refused {
		return nil, reads.ErrBusy
	}
	a.calls++
	return func() { a.ended++ }, nil
}

// TestAReviewIsACall covers reviews that wait for other requests.
func TestAReviewIsACall(t *testing.T) {
	a, client := &account{}, &fake.Clientset{}
	client.AddReactor("create", "subjectaccessreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		if a.calls != 1 || a.ended != 0 {
			t.Errorf("There were %d calls before the answer, of which %d are over, want 1 and 0", a.calls, a.ended)
		}
		return true, &authorizationv1.SubjectAccessReview{}, nil
	})
	ctx := reads.NewContext(t.Context(), a)
	if _, err := authorization.New(client)(ctx, authorizationv1.SubjectAccessReviewSpec{}); err != nil || a.ended != 1 || a.scopes != 1 || a.over != 1 {
		t.Errorf("Got the error %v; %d calls are over, and %d of %d scopes", err, a.ended, a.over, a.scopes)
	}
	a.refused = true
	if _, err := authorization.New(client)(ctx, authorizationv1.SubjectAccessReviewSpec{}); !errors.Is(err, reads.ErrBusy) || len(client.Actions()) != 1 {
		t.Errorf("Got the error %v and %d reviews, want %v and 1", err, len(client.Actions()), reads.ErrBusy)
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
