package admit

import (
	"context"
	"errors"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
)

// ForSigner reports whether a user may do something, such as approve, for a
// signer: for that one by its name, or for all of its domain, as in
// kubernetes.io/*. An error says that neither was allowed, and that the API server
// did not answer.
//
// Upstream: pkg/certauthorization.
func (ask AuthorizeFunc) ForSigner(ctx context.Context, user authenticationv1.UserInfo, verb, signer string) (bool, error) {
	domain, _, _ := strings.Cut(signer, "/")
	var unanswered []error
	for _, name := range []string{signer, domain + "/*"} {
		got, err := ask(ctx, AccessReviewFor(user, &authorizationv1.ResourceAttributes{
			Verb: verb, Group: certificatesv1.GroupName, Version: "*", Resource: "signers", Name: name,
		}))
		switch {
		case apierrors.IsInternalError(err), err == nil && got.EvaluationError != "":
			// Upstream: an authorizer that fails has not allowed it, whatever it says.
			klog.FromContext(ctx).V(3).Info("Access could not be decided", "verb", verb, "signer", name, "err", err, "evaluationError", got.EvaluationError)
		case err != nil:
			unanswered = append(unanswered, fmt.Errorf("asking whether the user may %s for signer %q: %w", verb, name, err))
		case got.Allowed:
			return true, nil
		}
	}
	return false, errors.Join(unanswered...)
}

// CheckSigner denies a user who may not do something for a signer. What is done
// there is in kube-apiserver's words, such as approve requests with.
func (ask AuthorizeFunc) CheckSigner(ctx context.Context, r *Request, verb, what, signer string) error {
	allowed, err := ask.ForSigner(ctx, r.UserInfo, verb, signer)
	if err != nil || allowed {
		return err
	}
	return Forbidden(r, fmt.Errorf("user not permitted to %s signerName %q", what, signer))
}

// NotAuthorizedForSigner is the CEL by which the API server finds out itself what
// ForSigner asks it, so that it need not call for what is allowed. The signer is a
// CEL expression. Both checks together cost 700,000, and an expression may cost
// 1,000,000.
func NotAuthorizedForSigner(verb, signer string) string {
	check := func(name string) string {
		return "authorizer.group('" + certificatesv1.GroupName + "').resource('signers').name(" + name + ").check('" + verb + "').allowed()"
	}
	// Everybody whom an API server has authenticated is in a group. A request of
	// somebody in none is one that a tool replays, as conformance does, and what is
	// asked for there is the answer of the plugin.
	return "!(has(request.userInfo.groups) && (" + check(signer) + " || " + check(signer+".split('/')[0] + '/*'") + "))"
}
