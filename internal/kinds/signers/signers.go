// Package signers authorizes requests that use a signer of certificates, for the plugins of kube-apiserver's
// plugin/pkg/admission/certificates.
package signers

import (
	"context"
	"errors"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/postern-dev/postern/internal/authorization"
	"github.com/postern-dev/postern/pkg/admit"
)

// Authorized reports whether a user may use a verb, such as approve, on a signer:
// on the signer by name, or on all signers of its domain, as in kubernetes.io/*.
// An error means that neither review allowed it and at least one was not answered.
//
// Upstream: pkg/certauthorization.
func Authorized(ctx context.Context, ask admit.AuthorizeFunc, user authenticationv1.UserInfo, verb, signer string) (bool, error) {
	domain, _, _ := strings.Cut(signer, "/")
	var unanswered []error
	for _, name := range []string{signer, domain + "/*"} {
		got, err := ask(ctx, authorization.ReviewFor(user, &authorizationv1.ResourceAttributes{
			Verb: verb, Group: certificatesv1.GroupName, Version: "*", Resource: "signers", Name: name,
		}))
		switch {
		case err != nil:
			unanswered = append(unanswered, fmt.Errorf("authorizing the user to %s for signer %q: %w", verb, name, err))
		case got.EvaluationError != "":
			// Upstream: an answer with an evaluation error allows nothing, whatever its decision is.
		case got.Allowed:
			return true, nil
		}
	}
	return false, errors.Join(unanswered...)
}

// Check denies a user who may not use a verb on a signer. The action is part of the message of
// kube-apiserver, such as "approve requests with".
func Check(ctx context.Context, ask admit.AuthorizeFunc, r *admit.Request, verb, action, signer string) error {
	allowed, err := Authorized(ctx, ask, r.UserInfo, verb, signer)
	if err != nil || allowed {
		return err
	}
	return admit.Forbidden(r, fmt.Errorf("user not permitted to %s signerName %q", action, signer))
}

// NotAuthorized returns a CEL expression that is false if Authorized would return true. The API server
// evaluates the expression with its own authorizer and does not call for allowed requests. The signer is a
// CEL expression. The two checks cost 700,000 together, and an expression may cost 1,000,000. A list with one
// check as its element lets the expression read a decision twice and pay for it once. The expression is also
// true for a signer whose name is longer than the API server accepts.
func NotAuthorized(verb, signer string) string {
	check := func(name string) string {
		return "[authorizer.group('" + certificatesv1.GroupName + "').resource('signers').name(" + name + ").check('" + verb + "')]" +
			".exists(d, d.allowed() && !d.errored())"
	}
	return "(size(" + signer + ") > 1000 || !(" + check(signer) + " || " + check(signer+".split('/')[0] + '/*'") + "))"
}
