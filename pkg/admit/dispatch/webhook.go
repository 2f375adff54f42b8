package dispatch

import (
	"fmt"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	"k8s.io/utils/ptr"

	"github.com/postern-dev/postern/pkg/router"
)

// Webhook is one webhook of a configuration. It is read-only.
type Webhook struct {
	// Service is the path of the service, and Phase is router.PhaseMutate or router.PhaseValidate.
	Service, Phase string
	// Configuration is the name of the configuration, and Name that of the webhook.
	Configuration, Name string
	MatchConditions     []admissionregistrationv1.MatchCondition
	FailurePolicy       admissionregistrationv1.FailurePolicyType
}

// hook is a webhook with what the API server does with it.
type hook struct {
	Webhook

	service            router.AdmissionService
	rules              []admissionregistrationv1.RuleWithOperations
	matchPolicy        admissionregistrationv1.MatchPolicyType
	sideEffects        admissionregistrationv1.SideEffectClass
	namespaces, object labels.Selector
	timeout            time.Duration
	// isReinvoked says that the API server calls the webhook again after a later change of the object.
	isReinvoked bool
	// hasOther says that a later webhook calls the same half for requests for which this one is not called.
	hasOther bool
}

func mutatingHooks(s router.AdmissionService) ([]*hook, error) {
	if s.MutatingConfig == nil {
		return nil, nil
	}
	var out []*hook
	for i := range s.MutatingConfig.Webhooks {
		h, err := newHook(s, router.PhaseMutate, s.MutatingConfig.Name, &s.MutatingConfig.Webhooks[i])
		if err != nil {
			return nil, err
		}
		out = append(out, h)
	}
	return others(out), nil
}

func validatingHooks(s router.AdmissionService) ([]*hook, error) {
	if s.ValidatingConfig == nil {
		return nil, nil
	}
	var out []*hook
	for _, w := range s.ValidatingConfig.Webhooks {
		h, err := newHook(s, router.PhaseValidate, s.ValidatingConfig.Name, &admissionregistrationv1.MutatingWebhook{
			Name: w.Name, Rules: w.Rules, FailurePolicy: w.FailurePolicy, MatchPolicy: w.MatchPolicy, NamespaceSelector: w.NamespaceSelector,
			ObjectSelector: w.ObjectSelector, SideEffects: w.SideEffects, TimeoutSeconds: w.TimeoutSeconds, MatchConditions: w.MatchConditions,
		})
		if err != nil {
			return nil, err
		}
		out = append(out, h)
	}
	return others(out), nil
}

// defaultTimeout is the API server's for a webhook without timeoutSeconds.
const defaultTimeout = 10 * time.Second

// newHook returns the hook of a webhook. A field that is not set has the default of the API server.
func newHook(s router.AdmissionService, phase, configuration string, w *admissionregistrationv1.MutatingWebhook) (*hook, error) {
	h := &hook{
		Webhook: Webhook{
			Service: s.Path, Phase: phase, Configuration: configuration, Name: w.Name, MatchConditions: w.MatchConditions,
			FailurePolicy: ptr.Deref(w.FailurePolicy, admissionregistrationv1.Fail),
		},
		service: s, rules: w.Rules, matchPolicy: ptr.Deref(w.MatchPolicy, admissionregistrationv1.Equivalent), sideEffects: ptr.Deref(w.SideEffects, ""),
		timeout: defaultTimeout, isReinvoked: ptr.Deref(w.ReinvocationPolicy, "") == admissionregistrationv1.IfNeededReinvocationPolicy,
	}
	if seconds := w.TimeoutSeconds; seconds != nil {
		if *seconds < 1 || *seconds > 30 {
			return nil, fmt.Errorf("the timeoutSeconds of the webhook %s: %d is not between 1 and 30", w.Name, *seconds)
		}
		h.timeout = time.Duration(*seconds) * time.Second
	}
	for _, s := range []struct {
		name string
		from *metav1.LabelSelector
		into *labels.Selector
	}{{"namespaceSelector", w.NamespaceSelector, &h.namespaces}, {"objectSelector", w.ObjectSelector, &h.object}} {
		if s.from == nil {
			s.from = &metav1.LabelSelector{} // It selects everything, and a selector that is nil nothing.
		}
		var err error
		if *s.into, err = metav1.LabelSelectorAsSelector(s.from); err != nil {
			return nil, fmt.Errorf("the %s of the webhook %s: %w", s.name, w.Name, err)
		}
	}
	return h, nil
}

// others sets hasOther of the webhooks of a configuration.
func others(hooks []*hook) []*hook {
	for i, h := range hooks {
		h.hasOther = slices.ContainsFunc(hooks[i+1:], (*hook).isOther)
	}
	return hooks
}

// isOther reports whether the webhook is not called for requests for which an earlier one has called the same half.
func (h *hook) isOther() bool {
	return slices.ContainsFunc(h.MatchConditions, func(c admissionregistrationv1.MatchCondition) bool { return c.Name == router.NotCalledAlready })
}

func byConfiguration(a, b *hook) int { return strings.Compare(a.Configuration, b.Configuration) }

// addresses reports whether a rule of the webhook matches a request. If only a rule for another version of the resource does, it
// returns that one, to which the API server converts.
func (h *hook) addresses(ar *admissionv1.AdmissionRequest) (matches bool, other schema.GroupVersionResource) {
	resource := schema.GroupVersionResource(ar.Resource)
	if h.matchesAs(ar, resource) {
		return true, other
	}
	if h.matchPolicy != admissionregistrationv1.Equivalent {
		return false, other
	}
	for _, r := range h.rules {
		for _, group := range equivalentGroups(resource) {
			for _, version := range r.APIVersions {
				equivalent := resource
				if equivalent.Group = group; version != "*" {
					equivalent.Version = version
				}
				if equivalent != resource && h.matchesAs(ar, equivalent) {
					return true, equivalent
				}
			}
		}
	}
	return false, other
}

// equivalentGroups returns the API groups that serve the objects of a resource.
//
// Upstream: k8s.io/kubernetes/pkg/kubeapiserver NewStorageFactoryConfig.
func equivalentGroups(r schema.GroupVersionResource) []string {
	if r.Resource == "events" && (r.Group == "" || r.Group == "events.k8s.io") {
		return []string{"", "events.k8s.io"}
	}
	return []string{r.Group}
}

func (h *hook) matchesAs(ar *admissionv1.AdmissionRequest, resource schema.GroupVersionResource) bool {
	attributes := admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind(ar.Kind), ar.Namespace, ar.Name, resource, ar.SubResource, admission.Operation(ar.Operation), nil, false, nil)
	for _, r := range h.rules {
		if (&rules.Matcher{Rule: r, Attr: attributes}).Matches() {
			return true
		}
	}
	return false
}

// reinvocations knows which mutating webhooks are called again because a later one changed the object.
//
// Upstream: webhookReinvokeContext.
type reinvocations struct {
	// before are the webhooks that were called since the last change, and again those that were called before it.
	before, again map[*hook]bool
}

func (r *reinvocations) called(h *hook) {
	if h.isReinvoked {
		r.before = with(r.before, h)
	}
}

func (r *reinvocations) changed() {
	for h := range r.before {
		r.again = with(r.again, h)
	}
	r.before = nil
}

func with(set map[*hook]bool, h *hook) map[*hook]bool {
	if set == nil {
		set = map[*hook]bool{}
	}
	set[h] = true
	return set
}
