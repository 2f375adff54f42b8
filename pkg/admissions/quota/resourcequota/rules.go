package resourcequota

import (
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/postern-dev/postern/pkg/admit"
)

var (
	pods           = schema.GroupResource{Resource: "pods"}
	services       = schema.GroupResource{Resource: "services"}
	volumeClaims   = schema.GroupResource{Resource: "persistentvolumeclaims"}
	resourceClaims = schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceclaims"}
)

// rules returns the rules of a configuration. The requests for limited resources fail closed. All others do so too,
// unless the API server enforces the quotas itself: then only Postern's answer is lost while Postern is down.
func (c config) rules(enforcedAnyhow bool) []admit.Rule {
	var rules []admit.Rule
	for _, gr := range c.limitedKinds() {
		rules = append(append(rules, creation(gr)), updates(gr)...)
	}
	if c.Mode == modeLimited {
		return rules
	}
	// The rest: every creation in a namespace, because each quota may count any resource.
	rest := []admit.Rule{creation(schema.GroupResource{Group: "*", Resource: "*"})}
	for _, gr := range []schema.GroupResource{pods, services, volumeClaims, resourceClaims} {
		rest = append(rest, updates(gr)...)
	}
	for _, r := range rest {
		if enforcedAnyhow {
			r = r.OrIgnore()
		}
		if !slices.ContainsFunc(rules, func(o admit.Rule) bool {
			return slices.Equal(o.Resources, r.Resources) && slices.Equal(o.Operations, r.Operations)
		}) {
			rules = append(rules, r)
		}
	}
	return rules
}

// limitedKinds returns the resources that limitedResources is about. Upstream: the scopes of an entry apply to all
// resources that have such a scope, whatever the resource of the entry.
func (c config) limitedKinds() []schema.GroupResource {
	var out []schema.GroupResource
	add := func(gr schema.GroupResource) {
		if !slices.Contains(out, gr) {
			out = append(out, gr)
		}
	}
	for _, l := range c.LimitedResources {
		add(schema.GroupResource{Group: l.APIGroup, Resource: l.Resource})
		for _, scope := range l.MatchScopes {
			if scope.ScopeName == corev1.ResourceQuotaScopeVolumeAttributesClass {
				add(volumeClaims)
			} else {
				add(pods)
			}
		}
	}
	return out
}

// creation returns the rule for new objects of any version, because a custom resource may have any.
func creation(gr schema.GroupResource) admit.Rule {
	return admit.Rule{
		Group: gr.Group, Versions: []string{"*"}, Resources: []string{gr.Resource}, Scope: admissionregistrationv1.NamespacedScope,
		Operations: []admissionv1.Operation{admissionv1.Create},
	}
}

// updates returns the rules for the updates that may change what an object uses.
func updates(gr schema.GroupResource) []admit.Rule {
	switch gr {
	case pods:
		return []admit.Rule{admit.On("pods", admissionv1.Update).If(deadlineChanges()), admit.On("pods/resize", admissionv1.Update)}
	case services:
		return []admit.Rule{admit.On("services", admissionv1.Update)}
	case volumeClaims:
		// Controllers bind and resize volumes with the status. They must not stop while Postern is down.
		return []admit.Rule{admit.On("persistentvolumeclaims", admissionv1.Update), admit.On("persistentvolumeclaims/status", admissionv1.Update).OrIgnore()}
	case resourceClaims:
		r := creation(resourceClaims)
		r.Operations = []admissionv1.Operation{admissionv1.Update}
		return []admit.Rule{r}
	}
	return nil
}

// deadlineChanges is the CEL for an update that may move a pod between the scopes Terminating and NotTerminating.
func deadlineChanges() string {
	deadline := func(of string) string { return admit.CELValue(of+".spec.activeDeadlineSeconds", "null") }
	return deadline("object") + " != " + deadline("oldObject")
}
