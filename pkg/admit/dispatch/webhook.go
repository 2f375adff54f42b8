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
	// hasOther is true if a later webhook for the same namespaces has the condition NotCalledAlready.
	hasOther bool
}

// hooks returns the webhooks of one half of a service.
func hooks(s router.AdmissionService, phase string) ([]*hook, error) {
	var configuration string
	var webhooks []admissionregistrationv1.MutatingWebhook
	switch {
	case phase == router.PhaseMutate && s.MutatingConfig != nil:
		configuration, webhooks = s.MutatingConfig.Name, s.MutatingConfig.Webhooks
	case phase == router.PhaseValidate && s.ValidatingConfig != nil:
		configuration = s.ValidatingConfig.Name
		for _, w := range s.ValidatingConfig.Webhooks {
			webhooks = append(webhooks, admissionregistrationv1.MutatingWebhook{
				Name: w.Name, Rules: w.Rules, FailurePolicy: w.FailurePolicy, MatchPolicy: w.MatchPolicy, NamespaceSelector: w.NamespaceSelector,
				ObjectSelector: w.ObjectSelector, SideEffects: w.SideEffects, TimeoutSeconds: w.TimeoutSeconds, MatchConditions: w.MatchConditions,
			})
		}
	}
	var out []*hook
	for i := range webhooks {
		h, err := newHook(s, phase, configuration, &webhooks[i])
		if err != nil {
			return nil, err
		}
		out = append(out, h)
	}
	for i, h := range out {
		h.hasOther = slices.ContainsFunc(out[i+1:], h.isFollowedBy)
	}
	return out, nil
}

// defaultTimeout is the API server's default of timeoutSeconds.
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

// isFollowedBy reports whether a later webhook is called for requests for which this one is not.
func (h *hook) isFollowedBy(later *hook) bool {
	follows := slices.ContainsFunc(later.MatchConditions, func(c admissionregistrationv1.MatchCondition) bool { return c.Name == router.NotCalledAlready })
	return follows && router.IsForOwnNamespace(h.MatchConditions) == router.IsForOwnNamespace(later.MatchConditions)
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
	as := attributes(ar, resource)
	return slices.ContainsFunc(h.rules, func(r admissionregistrationv1.RuleWithOperations) bool {
		return (&rules.Matcher{Rule: r, Attr: as}).Matches()
	})
}

// attributes returns what the rules of the API server read of a request for a resource.
func attributes(ar *admissionv1.AdmissionRequest, resource schema.GroupVersionResource) admission.Attributes {
	return admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind(ar.Kind), ar.Namespace, ar.Name, resource, ar.SubResource, admission.Operation(ar.Operation), nil, false, nil)
}

// invocations knows which mutating webhooks are called again because a later one changed the object.
//
// Upstream: webhookReinvokeContext.
type invocations struct {
	// reinvocable are the webhooks that were called and may be called again. The first ones, as many as beforeChange, were called
	// before the last change of the object.
	reinvocable  []*hook
	beforeChange int
	// changed is true if a webhook changed the object.
	changed bool
}

func (i *invocations) add(h *hook) {
	if h.isReinvoked {
		i.reinvocable = append(i.reinvocable, h)
	}
}

func (i *invocations) change() { i.changed, i.beforeChange = true, len(i.reinvocable) }

func (i *invocations) mustRepeat(h *hook) bool {
	return slices.Contains(i.reinvocable[:i.beforeChange], h)
}
