package admittest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/internal/conditions"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/dispatch"
	"github.com/postern-dev/postern/pkg/router"
)

// Outcome is the outcome of a request after both phases.
type Outcome struct {
	// Allowed is true if no phase denied the request. Otherwise Status is the denial.
	Allowed bool
	Status  metav1.Status
	// Warnings and Audit are the combined warnings and audit annotations of both phases. The keys of Audit have no prefix. The
	// annotation that names the plugin of a denial is left out.
	Warnings []string
	Audit    map[string]string
	// Object is the JSON of the object after the phases. Changed reports whether it differs from the object of the
	// request.
	Object  []byte
	Changed bool
	// Failure is the answer to a request that the plugin failed to decide, or nil. The name of the plugin before its text is
	// left out.
	Failure *HTTPError

	// uncalled says why the API server would call in no phase.
	uncalled string
}

func (o *Outcome) verdict() string {
	switch {
	case o.Allowed && o.uncalled != "":
		return "allowed true (the API server does not call: " + o.uncalled + ")"
	case o.Allowed:
		return "allowed true"
	}
	return fmt.Sprintf("allowed false (%d %s %q)", o.Status.Code, o.Status.Reason, o.Status.Message)
}

// Play sends a request through the phases of the case, as the API server does. It returns an
// error if an answer is invalid in every case.
func (s *Server) Play(ctx context.Context, c *Case, r *Request) (*Outcome, error) {
	ar, err := r.Admission()
	if err != nil {
		return nil, err
	}
	p := &play{Server: s, ctx: ctx, called: map[string]bool{}, out: &Outcome{Allowed: true, Object: ar.Object.Raw, Audit: map[string]string{}}}
	p.out.uncalled = fmt.Sprintf("no rule of the plugin matches %s of %s", ar.Operation, path.Join(ar.Resource.Group, ar.Resource.Version, ar.Resource.Resource, ar.SubResource))
	d, err := dispatch.New([]router.AdmissionService{p.service(c.Phase)}, dispatch.Options{Conditions: s.meets, CallsForReviews: true})
	if err != nil {
		return nil, err
	}
	if err := p.checkUncalled(router.PhaseMutate, c.Phase, ar); err != nil {
		return nil, err
	}
	decision, err := d.Dispatch(ctx, ar)
	if err := cmp.Or(err, p.err); err != nil {
		return nil, err
	}
	p.out.Object, ar.Object.Raw = decision.Object, decision.Object
	switch {
	case !p.out.Allowed:
		return p.out, nil
	case decision.Status != nil:
		return nil, fmt.Errorf("the API server does not admit the request: %s", decision.Status.Message)
	}
	if err := p.checkUncalled(router.PhaseValidate, c.Phase, ar); err != nil {
		return nil, err
	}
	for phase, called := range p.called {
		if !called {
			return nil, fmt.Errorf("%s: the rules match, but an API server calls no webhook for a %s", phase, ar.Kind.Kind)
		}
	}
	return p.out, nil
}

// play is a request on its way through the phases.
type play struct {
	*Server

	ctx context.Context //nolint:containedctx // a play lasts as long as a call of Play
	out *Outcome
	// called says of each phase that the rules and the conditions match whether it was called.
	called map[string]bool
	// err is the first answer that is invalid in every case.
	err error
}

// service returns the service of the plugin, whose halves are called over the wire. The failure policy is always Fail. If only is
// set, the service has only that half.
func (p *play) service(only string) router.AdmissionService {
	s := router.AdmissionService{Path: p.Service.Path}
	if p.Has(router.PhaseMutate) && only != router.PhaseValidate {
		s.Mutate, s.MutatingConfig = p.post(router.PhaseMutate), p.Service.MutatingConfig.DeepCopy()
		for i := range s.MutatingConfig.Webhooks {
			s.MutatingConfig.Webhooks[i].FailurePolicy = new(admissionregistrationv1.Fail)
		}
	}
	if p.Has(router.PhaseValidate) && only != router.PhaseMutate {
		s.Validate, s.ValidatingConfig = p.post(router.PhaseValidate), p.Service.ValidatingConfig.DeepCopy()
		for i := range s.ValidatingConfig.Webhooks {
			s.ValidatingConfig.Webhooks[i].FailurePolicy = new(admissionregistrationv1.Fail)
		}
	}
	return s
}

// meets evaluates the match conditions of a webhook.
func (s *Server) meets(ctx context.Context, w *dispatch.Webhook, ar *admissionv1.AdmissionRequest) (bool, error) {
	compiled := slices.DeleteFunc(slices.Clone(s.Webhooks[w.Phase]), func(other *conditions.Webhook) bool { return other.Name != w.Name })
	match, err := conditions.Match(ctx, compiled, ar, s.Authorizer())
	return match.Called, err
}

// checkUncalled returns an error if the plugin acts on a request for which the API server does not call a phase.
func (p *play) checkUncalled(phase, only string, ar *admissionv1.AdmissionRequest) error {
	if !p.Has(phase) || only != "" && only != phase {
		return nil
	}
	match, err := p.Match(p.ctx, phase, ar)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", phase, err)
	case match.Called:
		if _, known := p.called[phase]; !known {
			p.called[phase] = false
		}
		return nil
	case match.Addressed && p.out.uncalled != "":
		p.out.uncalled = "the condition of the rule is false"
	}
	resp, err := p.Post(p.ctx, phase, ar)
	if err := cmp.Or(p.violated(), p.Silent(resp, err)); err != nil {
		return fmt.Errorf("%s: %w", phase, err)
	}
	return nil
}

// post returns an AdmitFunc that sends a request to one phase, and repeats a mutating request with the patched object: plugins are
// called again when a later webhook changed the object.
func (p *play) post(phase string) router.AdmitFunc {
	return func(_ context.Context, ar *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		if _, matched := p.called[phase]; phase == router.PhaseMutate && !matched {
			p.err = errors.New("mutate: the webhook is called although its rules or its conditions do not match")
		}
		p.out.uncalled, p.called[phase] = "", true
		resp, err := p.Post(p.ctx, phase, ar)
		if err == nil {
			err = p.take(phase, ar, resp)
		}
		if failure, ok := errors.AsType[*HTTPError](err); ok {
			failure.Body = strings.TrimPrefix(failure.Body, "plugin "+p.plugin+": ")
			p.out.Allowed, p.out.Failure, err = false, failure, nil
		}
		if err = cmp.Or(p.violated(), err); err != nil {
			p.err = cmp.Or(p.err, fmt.Errorf("%s: %w", phase, err))
		}
		if resp == nil {
			resp = &admissionv1.AdmissionResponse{Result: &metav1.Status{Code: http.StatusInternalServerError}}
		}
		return resp
	}
}

func (p *play) violated() error {
	if violation := p.violation.Load(); violation != nil {
		return errors.New(*violation)
	}
	return nil
}

// take adds an answer to the outcome.
func (p *play) take(phase string, ar *admissionv1.AdmissionRequest, resp *admissionv1.AdmissionResponse) error {
	out := p.out
	out.Warnings = append(out.Warnings, resp.Warnings...)
	maps.Copy(out.Audit, resp.AuditAnnotations)
	if by, ok := out.Audit[admit.DeniedBy]; ok && (resp.Allowed || by != p.plugin) {
		return fmt.Errorf("the audit annotation %q is for the plugin that denies, and has %q", admit.DeniedBy, by)
	}
	delete(out.Audit, admit.DeniedBy)
	if !resp.Allowed {
		out.Allowed = false
		if resp.Result == nil {
			return errors.New("a denial without a status")
		}
		out.Status = *resp.Result
		return nil
	}
	if resp.Patch == nil || phase == router.PhaseValidate {
		return nil
	}
	out.Changed = true
	return p.repeat(ar, resp.Patch)
}

// repeat sends a request again with the changes of a patch, which must change the object, and be all that the plugin changes.
func (p *play) repeat(ar *admissionv1.AdmissionRequest, patch []byte) error {
	changed := *ar
	var err error
	if changed.Object.Raw, err = dispatch.Apply(ar.Object.Raw, patch); err != nil {
		return fmt.Errorf("applying the patch %s: %w", patch, err)
	}
	if bytes.Equal(changed.Object.Raw, ar.Object.Raw) {
		return fmt.Errorf("the patch changes nothing: %s", patch)
	}
	again, err := p.Post(p.ctx, router.PhaseMutate, &changed)
	switch {
	case err != nil:
		return fmt.Errorf("the second call: %w", err)
	case !again.Allowed && again.Result != nil:
		return fmt.Errorf("the second call denied what the first one made: %s", again.Result.Message)
	case !again.Allowed:
		return errors.New("the second call denied what the first one made, without a status")
	case again.Patch != nil:
		return fmt.Errorf("the second call changed what the first one made: %s", again.Patch)
	}
	return nil
}
