package admit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/internal/lazylog"
	"github.com/postern-dev/postern/internal/names"
	"github.com/postern-dev/postern/internal/objects"
	"github.com/postern-dev/postern/internal/patch"
	"github.com/postern-dev/postern/internal/shorttext"
	"github.com/postern-dev/postern/internal/sparselog"
	"github.com/postern-dev/postern/pkg/router"
)

// Family is an ordered set of plugins behind one service. The API server calls each
// of the two halves of the service once, whatever the number of plugins.
type Family struct {
	// Name is the path of the service without the slash, and a part of the names of its webhooks.
	Name string
	// Plugins run in this order.
	Plugins []*Plugin
	// MatchPolicy defaults to Equivalent. Exact is for plugins that depend on the API
	// group of the client's request.
	MatchPolicy admissionregistrationv1.MatchPolicyType
	// ReinvocationPolicy defaults to that of the router. Never is for plugins that do
	// not change the object.
	ReinvocationPolicy admissionregistrationv1.ReinvocationPolicyType
	// AnyNamespace is for plugins that decide themselves about requests in a namespace that cannot exist, such as "%".
	// For other families such a request is denied before the plugins run.
	AnyNamespace bool
}

// Service makes the service of the family from the enabled plugins, given by name
// with their configurations. A family without an enabled plugin has a service with
// neither half.
func (f Family) Service(d Deps, enabled map[string][]byte) (router.AdmissionService, error) {
	s := router.AdmissionService{Path: "/" + f.Name}
	var mutating, validating []step
	enabledPlugins := 0
	for _, p := range f.Plugins {
		config, ok := enabled[p.Name]
		if !ok {
			continue
		}
		enabledPlugins++
		h, err := p.handler(d, config)
		if err != nil {
			return s, &PluginError{Plugin: p.Name, Err: err}
		}
		if d.Warn != nil {
			for _, w := range h.Warnings {
				d.Warn(p.Name, w)
			}
		}
		rules := p.rules(h)
		if err := h.checkCalled(rules); err != nil {
			return s, &PluginError{Plugin: p.Name, Err: err}
		}
		// The rules of a handler are not checked: ResourceQuota's configuration may name a group such as apps/v1, which
		// kube-apiserver accepts.
		for _, r := range p.Rules {
			if err := r.check(); err != nil {
				return s, &PluginError{Plugin: p.Name, Err: err}
			}
		}
		s := step{plugin: p, logged: func() []any { return []any{"plugin", p.Name} }, denials: sparselog.New(denialLines), namespace: d.Namespace}
		mutating = s.addTo(mutating, h.Mutate, rulesIn(rules, Mutating))
		validating = s.addTo(validating, h.Validate, rulesIn(rules, Validating))
	}
	if err := cmp.Or(sameVersions(mutating), sameVersions(validating)); err != nil {
		return s, err
	}
	c := &chain{observe: d.Observe, anyNamespace: f.AnyNamespace, mutating: mutating, mixed: d.Mixed, mended: d.Mended}
	s.Objects = router.Objects{Weigh: objects.Weigh, Bound: objects.Bound, New: objects.New}
	if len(mutating) > 0 {
		s.Mutate = c.admitFunc(Mutating, mutating)
		s.MutatingConfig = f.mutatingConfig(mutating, d.Namespace)
	}
	// A family whose enabled plugins have nothing to do registers a configuration
	// without webhooks.
	if len(validating) > 0 || (len(mutating) == 0 && enabledPlugins > 0) {
		s.Validate = c.admitFunc(Validating, validating)
		s.ValidatingConfig = f.validatingConfig(validating, d.Namespace)
	}
	return s, nil
}

// handler makes the plugin. A plugin that is not configurable gets no configuration. If the API server runs it too, the handler
// has a warning.
func (p *Plugin) handler(d Deps, config []byte) (Handler, error) {
	if p.Configurable {
		return p.New(d, config)
	}
	if _, err := LoadConfig[struct{}](config); err != nil {
		return Handler{}, err
	}
	h, err := p.New(d, nil)
	h.Warnings = append(h.Warnings, d.Redundant(p.Name, true)...)
	return h, err
}

// checkCalled returns an error for a func that nothing would call, or a rule for which there is no func. A handler without funcs
// has been switched off.
func (h Handler) checkCalled(rules []Rule) error {
	for _, r := range rules {
		switch {
		case r.Phase == Mutating && h.Mutate == nil && h.Validate != nil:
			return fmt.Errorf("the rule for %s is for Mutate, which the plugin does not have", strings.Join(r.Resources, ", "))
		case r.Phase == Validating && h.Validate == nil && h.Mutate != nil:
			return fmt.Errorf("the rule for %s is for Validate, which the plugin does not have", strings.Join(r.Resources, ", "))
		}
	}
	switch {
	case h.Mutate != nil && len(rulesIn(rules, Mutating)) == 0:
		return errors.New("no rule for the mutating phase, so nothing would call Mutate")
	case h.Validate != nil && len(rulesIn(rules, Validating)) == 0:
		return errors.New("no rule for the validating phase, so nothing would call Validate")
	}
	return nil
}

// rules returns the rules of the plugin and of its handler, each with a failure
// policy.
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
	logged func() []any // The values for the logger of the plugin.
	run    Func
	rules  []Rule
	// denials bounds the lines in the log about denials of the plugin in both phases.
	denials *sparselog.Limiter
	// namespace is the namespace of Postern.
	namespace string
}

// addTo appends the step with a func of its plugin, unless the plugin takes no part in the phase.
func (s step) addTo(steps []step, run Func, rules []Rule) []step {
	if run == nil {
		return steps
	}
	s.run, s.rules = run, rules
	return append(steps, s)
}

// call runs the plugin, which is named in what it logs.
func (s step) call(ctx context.Context, r *Request) error {
	return s.run(lazylog.WithValues(ctx, s.logged), r)
}

func rulesIn(rules []Rule, p Phase) []Rule {
	return slices.DeleteFunc(slices.Clone(rules), func(r Rule) bool { return !r.holds(p) })
}

func (s step) sees(ar *admissionv1.AdmissionRequest) bool {
	own := ar.Namespace != "" && ar.Namespace == s.namespace
	for i := range s.rules {
		if s.rules[i].OwnNamespace == own && s.rules[i].matches(ar) {
			return true
		}
	}
	return false
}

// chain runs the plugins of a family in order.
type chain struct {
	observe      func(plugin string, phase Phase, r *Request, took time.Duration, err error)
	anyNamespace bool
	// mutating holds the steps of the mutating phase. See mender.
	mutating []step
	mixed    func() bool
	mended   func(plugin string)
}

// admitFunc returns the AdmitFunc of one half of a family.
func (c *chain) admitFunc(phase Phase, steps []step) router.AdmitFunc {
	return func(ctx context.Context, ar *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		if !slices.ContainsFunc(steps, func(s step) bool { return s.sees(ar) }) {
			return &admissionv1.AdmissionResponse{Allowed: true}
		}
		if !c.anyNamespace && !canHaveNamespace(ar) {
			return respond(Deny(apierrors.NewNotFound(corev1.Resource("namespaces"), ar.Namespace)))
		}
		resp, err := c.run(ctx, phase, steps, ar)
		if err != nil {
			return respond(err)
		}
		return resp
	}
}

// canHaveNamespace returns false for a request in a namespace that cannot exist. It is denied with the answer of
// kube-apiserver's NamespaceLifecycle to a creation there. The API server validates the namespace in the path of a request after
// the mutating admission. A lookup of a plugin in such a namespace would be a failure that the user chose: see names.CanExist.
func canHaveNamespace(ar *admissionv1.AdmissionRequest) bool {
	// The namespace of a Namespace is its own name, which the API server validates.
	return ar.Namespace == "" || ar.Resource.Group == "" && ar.Resource.Resource == "namespaces" || names.CanExist(ar.Namespace)
}

func (c *chain) run(ctx context.Context, phase Phase, steps []step, ar *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	r, err := newRequest(ctx, ar)
	if err != nil {
		return nil, err
	}
	before := r.Object
	if phase == Mutating && r.Object != nil {
		before = patch.Copy(r.Object)
	}
	m := mender{chain: c, request: r}
	at := time.Now()
	for _, s := range steps {
		if !s.sees(ar) {
			continue
		}
		if at, err = c.step(ctx, phase, s, r, &m, at); err != nil {
			resp := respond(err)
			resp.Warnings, resp.AuditAnnotations = r.warnings, r.audit
			return resp, nil
		}
	}
	m.tell(ctx)
	resp := &admissionv1.AdmissionResponse{Allowed: true, Warnings: r.warnings, AuditAnnotations: r.audit}
	if phase == Mutating {
		// An object without its changes must not pass, so this error is a failure.
		if resp.Patch, err = patch.Diff(ctx, before, r.Object, ar.Object.Raw); err != nil {
			return nil, fmt.Errorf("making the patch: %w", err)
		}
		patch.Recycle(before, ar.Object.Raw)
	}
	return resp, nil
}

// step runs one plugin at start, and returns when the plugin ended.
func (c *chain) step(ctx context.Context, phase Phase, s step, r *Request, m *mender, start time.Time) (time.Time, error) {
	if err := ctx.Err(); err != nil {
		return start, fmt.Errorf("plugin %s was not reached: %w", s.plugin.Name, err)
	}
	err := s.call(ctx, r)
	if err != nil && phase == Validating && c.mixed != nil {
		s, err = m.reconsider(ctx, s, err)
	}
	end := time.Now()
	if c.observe != nil {
		c.observe(s.plugin.Name, phase, r, end.Sub(start), err)
	}
	switch {
	case IsDenial(err):
		r.annotate(DeniedBy, s.plugin.Name)
		s.logDenial(ctx, r, err)
	case err != nil:
		// The router logs it, and the API server may show it to the user.
		err = fmt.Errorf("plugin %s: %w", s.plugin.Name, err)
	}
	return end, err
}

// DeniedBy is the audit annotation with the plugin that denied a request.
const DeniedBy = "plugin"

const (
	// denialLines is how many lines about denials of a plugin are logged at once.
	denialLines = 10
	// maxLoggedUser and maxLoggedReason are the longest texts in such a line, in bytes. Users choose parts of both.
	maxLoggedUser, maxLoggedReason = 256, 2 << 10
)

// logDenial tells who denied a request and why. The verbosity 2 shows every denial.
func (s step) logDenial(ctx context.Context, r *Request, denial error) {
	log := klog.FromContext(ctx)
	suppressed, ok := int64(0), log.V(2).Enabled()
	if !ok {
		if suppressed, ok = s.denials.Allow(); !ok {
			return
		}
	}
	log.Info("Denied", "plugin", s.plugin.Name, "user", shorttext.Line(r.UserInfo.Username, maxLoggedUser),
		"reason", shorttext.Line(denial.Error(), maxLoggedReason), "suppressed", suppressed)
}
