package signers_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/postern-dev/postern/internal/kinds/signers"
	"github.com/postern-dev/postern/pkg/admit"
)

func TestAuthorized(t *testing.T) {
	internal := apierrors.NewInternalError(errors.New("boom"))
	away := errors.New("away")
	type answer struct {
		admit.Decision
		err error
	}
	yes, no := answer{Decision: admit.Decision{Allowed: true}}, answer{}
	for name, tc := range map[string]struct {
		exact, domain answer
		want          bool
		wantErr       error
		asked         int
	}{
		"by its name":                        {exact: yes, want: true, asked: 1},
		"by its domain":                      {exact: no, domain: yes, want: true, asked: 2},
		"not at all":                         {exact: no, domain: no, asked: 2},
		"by its domain, no answer before":    {exact: answer{err: away}, domain: yes, want: true, asked: 2},
		"by its domain, a failure before":    {exact: answer{err: internal}, domain: yes, want: true, asked: 2},
		"no answer":                          {exact: answer{err: away}, domain: no, wantErr: away, asked: 2},
		"HTTP 500 for both":                  {exact: answer{err: internal}, domain: answer{err: internal}, wantErr: internal, asked: 2},
		"HTTP 500 for one":                   {exact: no, domain: answer{err: internal}, wantErr: internal, asked: 2},
		"an authorizer that says yes, broke": {exact: answer{Decision: admit.Decision{Allowed: true, EvaluationError: "boom"}}, domain: no, asked: 2},
	} {
		t.Run(name, func(t *testing.T) {
			var names []string
			ask := admit.AuthorizeFunc(func(_ context.Context, spec authorizationv1.SubjectAccessReviewSpec) (admit.Decision, error) {
				a := spec.ResourceAttributes
				if spec.User != "alice" || !slices.Equal(spec.Groups, []string{"g"}) || a.Verb != "approve" || a.Group != "certificates.k8s.io" || a.Resource != "signers" || a.Version != "*" {
					t.Errorf("Got the question %+v, %+v", spec, a)
				}
				names = append(names, a.Name)
				if a.Name == "abc.com/*" {
					return tc.domain.Decision, tc.domain.err
				}
				return tc.exact.Decision, tc.exact.err
			})
			got, err := signers.Authorized(t.Context(), ask, authenticationv1.UserInfo{Username: "alice", Groups: []string{"g"}}, "approve", "abc.com/x/y")
			if got != tc.want || !errors.Is(err, tc.wantErr) {
				t.Errorf("Got %t, %v; want %t, %v", got, err, tc.want, tc.wantErr)
			}
			if want := []string{"abc.com/x/y", "abc.com/*"}[:tc.asked]; !slices.Equal(names, want) {
				t.Errorf("Got questions about %q, want %q", names, want)
			}
		})
	}
}
