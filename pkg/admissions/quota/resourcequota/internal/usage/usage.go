// Package usage measures how much an object uses of the resources that a ResourceQuota limits. Its evaluators work on
// the types of k8s.io/api, and implement the interface of the quota engine of k8s.io/apiserver.
//
// Upstream: pkg/quota/v1/evaluator/core.
package usage

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/component-base/featuregate"
	"k8s.io/utils/clock"
)

// For returns the evaluator of a resource. A resource without rules of its own, such as a custom resource, is counted
// when it is created. The evaluator has no state, so it is made for each request, and nothing is kept for resources
// that come and go.
//
// The evaluators of ResourceClaims need facts from the API server; see Devices.
func For(gr schema.GroupResource, gates featuregate.FeatureGate, c clock.PassiveClock, devices Devices) quota.Evaluator {
	switch gr {
	case schema.GroupResource{Resource: "pods"}:
		return podEvaluator{gates: gates, clock: c}
	case schema.GroupResource{Resource: "services"}:
		return serviceEvaluator{}
	case schema.GroupResource{Resource: "persistentvolumeclaims"}:
		return volumeEvaluator{}
	case schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceclaims"}:
		return claimEvaluator{devices: devices}
	}
	return generic.NewObjectCountEvaluator(gr, nil, alias(gr))
}

// Ignored reports whether a quota never limits a resource: events, and resources that are not stored.
//
// Upstream: ignoredResources in pkg/quota/v1/install.
func Ignored(gr schema.GroupResource) bool {
	switch gr.Group {
	case corev1.GroupName:
		return gr.Resource == "bindings" || gr.Resource == "componentstatuses" || gr.Resource == "events"
	case eventsv1.GroupName:
		return gr.Resource == "events"
	case "authentication.k8s.io":
		return gr.Resource == "tokenreviews" || gr.Resource == "selfsubjectreviews"
	case "authorization.k8s.io":
		return gr.Resource == "subjectaccessreviews" || gr.Resource == "selfsubjectaccessreviews" ||
			gr.Resource == "localsubjectaccessreviews" || gr.Resource == "selfsubjectrulesreviews"
	}
	return false
}

// alias returns the second name under which objects of some resources are counted.
func alias(gr schema.GroupResource) corev1.ResourceName {
	if gr.Group != corev1.GroupName {
		return ""
	}
	switch name := corev1.ResourceName(gr.Resource); name {
	case corev1.ResourceConfigMaps, corev1.ResourceQuotas, corev1.ResourceReplicationControllers, corev1.ResourceSecrets:
		return name
	default:
		return ""
	}
}

// base has the methods that most evaluators have in common.
type base struct{}

// Constraints implements quota.Evaluator.
func (base) Constraints([]corev1.ResourceName, runtime.Object) error { return nil }

// MatchingScopes implements quota.Evaluator for objects without scopes.
func (base) MatchingScopes(runtime.Object, []corev1.ScopedResourceSelectorRequirement) ([]corev1.ScopedResourceSelectorRequirement, error) {
	return nil, nil
}

// UncoveredQuotaScopes implements quota.Evaluator for objects without scopes.
func (base) UncoveredQuotaScopes(_, _ []corev1.ScopedResourceSelectorRequirement) ([]corev1.ScopedResourceSelectorRequirement, error) {
	return nil, nil
}

// UsageStats implements quota.Evaluator. Only the quota controller sums the usage of all objects.
func (base) UsageStats(quota.UsageStatsOptions) (quota.UsageStats, error) {
	return quota.UsageStats{}, errors.New("the usage of all objects is the quota controller's to measure")
}

// scopeFunc reports whether an object is in a scope.
type scopeFunc = generic.MatchesScopeFunc

// matching returns the scopes that an object is in.
func matching(obj runtime.Object, scopes []corev1.ScopedResourceSelectorRequirement, in scopeFunc) ([]corev1.ScopedResourceSelectorRequirement, error) {
	var out []corev1.ScopedResourceSelectorRequirement
	for _, scope := range scopes {
		switch match, err := in(scope, obj); {
		case err != nil:
			return nil, fmt.Errorf("error on matching scope %v: %w", scope, err)
		case match:
			out = append(out, scope)
		}
	}
	return out, nil
}

// uncovered returns an error if no quota has the name of one of the limited scopes: the administrator requires one.
func uncovered(limited, covered []corev1.ScopedResourceSelectorRequirement) ([]corev1.ScopedResourceSelectorRequirement, error) {
	names := map[corev1.ResourceQuotaScope]bool{}
	for _, scope := range covered {
		names[scope.ScopeName] = true
	}
	var out []corev1.ScopedResourceSelectorRequirement
	for _, scope := range limited {
		if !names[scope.ScopeName] {
			out = append(out, scope)
		}
	}
	if len(out) > 0 {
		return nil, fmt.Errorf("insufficient quota to match these scopes: %v", out)
	}
	return nil, nil
}

// Selects reports whether a scope selects one of the names, or no name at all.
//
// Upstream: ScopedResourceSelectorRequirementsAsSelector in pkg/apis/core/v1/helper.
func Selects(scope corev1.ScopedResourceSelectorRequirement, names ...string) (bool, error) {
	if scope.Operator == corev1.ScopeSelectorOpExists {
		return len(names) > 0, nil
	}
	operators := map[corev1.ScopeSelectorOperator]selection.Operator{
		corev1.ScopeSelectorOpIn: selection.In, corev1.ScopeSelectorOpNotIn: selection.NotIn, corev1.ScopeSelectorOpDoesNotExist: selection.DoesNotExist,
	}
	operator, ok := operators[scope.Operator]
	if !ok {
		return false, fmt.Errorf("failed to parse and convert selector: %q is not a valid scope selector operator", scope.Operator)
	}
	wanted, err := labels.NewRequirement(string(scope.ScopeName), operator, scope.Values)
	if err != nil {
		return false, fmt.Errorf("failed to parse and convert selector: %w", err)
	}
	if len(names) == 0 {
		return wanted.Matches(labels.Set{}), nil
	}
	for _, name := range names {
		if wanted.Matches(labels.Set{string(scope.ScopeName): name}) {
			return true, nil
		}
	}
	return false, nil
}

// objectCount returns the name under which objects of a resource are counted.
func objectCount(group, resource string) corev1.ResourceName {
	return generic.ObjectCountQuotaResourceNameFor(schema.GroupResource{Group: group, Resource: resource})
}

func number(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.DecimalSI) }

// unexpected is the error for an object of another type. The API server accepted the object, so it is a failure.
func unexpected(want string, got runtime.Object) error {
	return fmt.Errorf("expect a %s, got %T", want, got)
}
