package admit

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/pkg/router"
)

// Family is an ordered set of plugins behind one service: the API server calls
// each of its two halves once, whatever the number of plugins.
type Family struct {
	Name    string
	Plugins []*Plugin
	// MatchPolicy is Equivalent where not set. Exact is for plugins that ask in
	// which group a request came.
	MatchPolicy admissionregistrationv1.MatchPolicyType
	// ReinvocationPolicy is the router's where not set. Never is for plugins that do
	// not change the object, so that nobody's change has to be followed by theirs.
	ReinvocationPolicy admissionregistrationv1.ReinvocationPolicyType
}

// Service makes the family's service of those of its plugins that are enabled,
// each with its configuration. The service of a family with no plugin that has
// anything to do has neither half.
func (f Family) Service(d Deps, enabled map[string][]byte) (router.AdmissionService, error) {
	s := router.AdmissionService{Path: "/" + f.Name}
	var mutating, validating []step
	for _, p := range f.Plugins {
		config, ok := enabled[p.Name]
		if !ok {
			continue
		}
		h, err := p.New(d, config)
		if err != nil {
			return s, &PluginError{Plugin: p.Name, Err: err}
		}
		rules := p.rules(h)
		mutating = step{p, h.Mutate, rulesIn(rules, Mutating)}.addTo(mutating)
		validating = step{p, h.Validate, rulesIn(rules, Validating)}.addTo(validating)
	}
	c := chain{metrics: d.Metrics}
	if len(mutating) > 0 {
		s.Mutate = c.admitFunc(Mutating, mutating)
		s.MutatingConfig = f.mutatingConfig(mutating)
	}
	if len(validating) > 0 {
		s.Validate = c.admitFunc(Validating, validating)
		s.ValidatingConfig = f.validatingConfig(validating)
	}
	return s, nil
}

// rules returns those of the plugin and of its handler, each with a failure policy.
func (p *Plugin) rules(h Handler) []Rule {
	rules := slices.Concat(p.Rules, h.Rules)
	for i := range rules {
		rules[i].FailurePolicy = cmp.Or(rules[i].FailurePolicy, p.FailurePolicy, admissionregistrationv1.Fail)
	}
	return rules
}

// step is one func of one plugin in a chain.
type step struct {
	plugin *Plugin
	run    Func
	rules  []Rule
}

// addTo adds a step that could ever run.
func (s step) addTo(steps []step) []step {
	if s.run == nil || len(s.rules) == 0 {
		return steps
	}
	return append(steps, s)
}

func rulesIn(rules []Rule, p Phase) []Rule {
	return slices.DeleteFunc(slices.Clone(rules), func(r Rule) bool { return !r.holds(p) })
}

func (s step) sees(ar *admissionv1.AdmissionRequest) bool {
	return slices.ContainsFunc(s.rules, func(r Rule) bool { return r.matches(ar) })
}

// chain runs plugins one after the other.
type chain struct {
	metrics *Metrics
	differ  differ
}

// admitFunc is one half of a family.
func (c *chain) admitFunc(phase Phase, steps []step) router.AdmitFunc {
	return func(ctx context.Context, ar *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		todo := make([]step, 0, len(steps))
		for _, s := range steps {
			if s.sees(ar) {
				todo = append(todo, s)
			}
		}
		if len(todo) == 0 {
			return &admissionv1.AdmissionResponse{Allowed: true}
		}
		resp, err := c.run(ctx, phase, todo, ar)
		if err != nil {
			return denied(err)
		}
		return resp
	}
}

func (c *chain) run(ctx context.Context, phase Phase, steps []step, ar *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	r, err := newRequest(ar)
	if err != nil {
		return nil, err
	}
	before := r.Object
	if phase == Mutating && r.Object != nil {
		before = r.Object.DeepCopyObject()
	}
	for _, s := range steps {
		if err := c.step(ctx, phase, s, r); err != nil {
			resp := denied(err)
			resp.Warnings, resp.AuditAnnotations = r.warnings, r.audit
			return resp, nil
		}
	}
	resp := &admissionv1.AdmissionResponse{Allowed: true, Warnings: r.warnings, AuditAnnotations: r.audit}
	if phase == Mutating {
		// A failure here is ours; the object must not pass unchanged.
		if resp.Patch, err = c.differ.patch(before, r.Object, ar.Object.Raw); err != nil {
			return nil, fmt.Errorf("making the patch: %w", err)
		}
	}
	return resp, nil
}

func (c *chain) step(ctx context.Context, phase Phase, s step, r *Request) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("plugin %s was not reached: %w", s.plugin.Name, err)
	}
	log := klog.LoggerWithValues(klog.FromContext(ctx), "plugin", s.plugin.Name)
	start := time.Now()
	err := s.run(klog.NewContext(ctx, log), r)
	c.metrics.observe(s.plugin.Name, phase, r.Operation, start, err)
	if err != nil {
		log.V(2).Info("Denied", "user", r.UserInfo.Username, "reason", err.Error())
	}
	return err
}

// newRequest decodes the objects of a request. Not to understand what the API
// server accepted is a failure of ours, so the error is a plain one.
func newRequest(ar *admissionv1.AdmissionRequest) (*Request, error) {
	r := &Request{AdmissionRequest: ar}
	var err error
	if r.Object, err = decode(ar.Object.Raw, ar.Kind); err != nil {
		return nil, fmt.Errorf("request.object: %w", err)
	}
	if r.OldObject, err = decode(ar.OldObject.Raw, ar.Kind); err != nil {
		return nil, fmt.Errorf("request.oldObject: %w", err)
	}
	return r, nil
}
