package authorization_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/postern-dev/postern/internal/authorization"
	"github.com/postern-dev/postern/pkg/admit"
)

func TestCached(t *testing.T) {
	about := func(user, verb, extra string) authorizationv1.SubjectAccessReviewSpec {
		return authorizationv1.SubjectAccessReviewSpec{
			User: user, Groups: []string{"g"}, Extra: map[string]authorizationv1.ExtraValue{"k": {extra}},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Resource: "pods"},
		}
	}
	for name, tc := range map[string]struct {
		first, second authorizationv1.SubjectAccessReviewSpec
		after         time.Duration
		fails         bool
		uncached      bool
		want          int
	}{
		"the same at once":               {first: about("alice", "get", ""), second: about("alice", "get", ""), want: 1},
		"the same within its age":        {first: about("alice", "get", ""), second: about("alice", "get", ""), after: 4 * time.Second, want: 1},
		"the same when it is too old":    {first: about("alice", "get", ""), second: about("alice", "get", ""), after: 6 * time.Second, want: 2},
		"another user":                   {first: about("alice", "get", ""), second: about("bob", "get", ""), want: 2},
		"another verb":                   {first: about("alice", "get", ""), second: about("alice", "delete", ""), want: 2},
		"another extra":                  {first: about("alice", "get", "x"), second: about("alice", "get", "y"), want: 2},
		"the same where nothing is kept": {first: about("alice", "get", ""), second: about("alice", "get", ""), uncached: true, want: 2},
		"what could not be decided":      {first: about("alice", "get", ""), second: about("alice", "get", ""), fails: true, want: 2},
		"a question that is very long":   {first: about("alice", "get", strings.Repeat("x", 10000)), second: about("alice", "get", strings.Repeat("x", 10000)), want: 2},
	} {
		t.Run(name, func(t *testing.T) {
			asked, age := 0, 5*time.Second
			if tc.uncached {
				age = 0
			}
			clock := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
			authorize := authorization.Cached(func(_ context.Context, spec authorizationv1.SubjectAccessReviewSpec) (admit.Decision, error) {
				asked++
				if tc.fails {
					return admit.Decision{}, errors.New("away")
				}
				return admit.Decision{Allowed: spec.User == "alice", Reason: spec.User}, nil
			}, age, clock)
			for i, spec := range []authorizationv1.SubjectAccessReviewSpec{tc.first, tc.second} {
				if i == 1 {
					clock.Step(tc.after)
				}
				got, err := authorize(t.Context(), spec)
				if (err != nil) != tc.fails {
					t.Fatalf("Got the error %v, want one: %t", err, tc.fails)
				}
				if want := (admit.Decision{Allowed: spec.User == "alice", Reason: spec.User}); !tc.fails && got != want {
					t.Errorf("Got %+v for %s, want %+v", got, spec.User, want)
				}
			}
			if asked != tc.want {
				t.Errorf("Asked %d times, want %d", asked, tc.want)
			}
		})
	}
}
