package admittest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/postern-dev/postern/internal/conditions"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/router"
)

// compiler is shared by all cases, because its creation is slow.
var compiler = sync.OnceValue(conditions.NewCompiler)

// compile compiles the conditions of the plugin for both phases. The API server
// refuses the whole configuration of a family with a condition that does not compile.
func (s *Server) compile() error {
	s.Webhooks = map[string][]*conditions.Webhook{}
	for _, phase := range []string{router.PhaseMutate, router.PhaseValidate} {
		webhooks, err := compiler().Of(s.Service, phase)
		if err != nil {
			return err
		}
		s.Webhooks[phase] = webhooks
	}
	return nil
}

// Match reports whether the API server would send a request to one phase of the
// plugin. An error says that a condition fails for the request, which the API server
// would then refuse or admit by the failure policy.
func (s *Server) Match(ctx context.Context, phase string, ar *admissionv1.AdmissionRequest) (conditions.Result, error) {
	return conditions.Match(ctx, s.Webhooks[phase], ar, s.Authorizer())
}

// Silent returns an error if a plugin acted on a request that the API server does not
// send to it, for example by a denial, a patch or a write. Its arguments are the
// results of Post.
func (s *Server) Silent(resp *admissionv1.AdmissionResponse, err error) error {
	const uncalled = "the API server would not call, because the condition is false or no rule matches, but the plugin"
	if err != nil {
		return fmt.Errorf("%s fails: %w", uncalled, err)
	}
	writes, err := s.Writes()
	switch {
	case err != nil:
		return err
	case !resp.Allowed:
		return fmt.Errorf("%s denies: %s", uncalled, resp.Result.Message)
	case resp.Patch != nil:
		return fmt.Errorf("%s changes the object: %s", uncalled, resp.Patch)
	case len(resp.Warnings)+len(resp.AuditAnnotations) > 0:
		return fmt.Errorf("%s says %q, %q", uncalled, resp.Warnings, resp.AuditAnnotations)
	case len(writes) > 0:
		return fmt.Errorf("%s writes %s", uncalled, describe(writes))
	}
	return nil
}

// Authorizer returns the authorizer of the API server that the conditions use. It
// answers with the access reviews of the case.
func (e *Environment) Authorizer() authorizer.UnconditionalAuthorizer { return reviews{e} }

type reviews struct{ env *Environment }

// Authorize implements authorizer.UnconditionalAuthorizer.
func (r reviews) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	d, err := r.env.Decide(a.GetUser().GetName(), authorizationv1.ResourceAttributes{
		Verb: a.GetVerb(), Group: a.GetAPIGroup(), Resource: a.GetResource(), Subresource: a.GetSubresource(),
		Namespace: a.GetNamespace(), Name: a.GetName(),
	})
	if err == nil && d.EvaluationError != "" {
		err = errors.New(d.EvaluationError)
	}
	if d.Allowed {
		return authorizer.DecisionAllow, d.Reason, err
	}
	return authorizer.DecisionNoOpinion, d.Reason, err
}

// guarded returns a copy of the plugin that reports changes that the contract
// forbids: Validate must not change the object, and no func may change the old
// object.
func (s *Server) guarded(p *admit.Plugin) *admit.Plugin {
	guarded := *p
	guarded.New = func(d admit.Deps, config []byte) (admit.Handler, error) {
		h, err := p.New(d, config)
		if h.Mutate != nil {
			h.Mutate = s.guard("Mutate", h.Mutate)
		}
		if h.Validate != nil {
			h.Validate = s.guard("Validate", h.Validate)
		}
		return h, err
	}
	return &guarded
}

func (s *Server) guard(name string, run admit.Func) admit.Func {
	return func(ctx context.Context, r *admit.Request) error {
		before := admit.Request{AdmissionRequest: r.AdmissionRequest}
		if r.Object != nil && name == "Validate" {
			before.Object = r.Object.DeepCopyObject()
		}
		if r.OldObject != nil {
			before.OldObject = r.OldObject.DeepCopyObject()
		}
		err := run(ctx, r)
		if name == "Validate" && !apiequality.Semantic.DeepEqual(before.Object, r.Object) {
			s.violation.CompareAndSwap(nil, new("Validate changed the object"))
		}
		if !apiequality.Semantic.DeepEqual(before.OldObject, r.OldObject) {
			s.violation.CompareAndSwap(nil, new(name+" changed the old object"))
		}
		return err
	}
}

// dropping returns an AdmitFunc that overwrites the text of a request after f returned, as the router does with the text of
// another request.
func dropping(f router.AdmitFunc) router.AdmitFunc {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, ar *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		resp := f(ctx, ar)
		for _, text := range [][]byte{ar.Object.Raw, ar.OldObject.Raw, ar.Options.Raw} {
			for i := range text {
				text[i] = 'x'
			}
		}
		return resp
	}
}
