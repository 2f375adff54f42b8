package usage

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/component-base/featuregate"
	"k8s.io/utils/clock"

	"github.com/postern-dev/postern/internal/kinds/podspec"
	"github.com/postern-dev/postern/internal/kinds/podusage"
)

// podEvaluator measures Pods.
type podEvaluator struct {
	base
	gates featuregate.FeatureGate
	clock clock.PassiveClock
}

// GroupResource implements quota.Evaluator.
func (podEvaluator) GroupResource() schema.GroupResource {
	return schema.GroupResource{Resource: "pods"}
}

// Handles implements quota.Evaluator. An update of the pod itself can move it to other quotas only with the deadline; a
// resize changes what it uses.
func (podEvaluator) Handles(a admission.Attributes) bool {
	switch {
	case a.GetSubresource() == "resize":
		return a.GetOperation() == admission.Update
	case a.GetSubresource() != "":
		return false
	case a.GetOperation() == admission.Update:
		pod, isNew := a.GetObject().(*corev1.Pod)
		old, isOld := a.GetOldObject().(*corev1.Pod)
		return isNew && isOld && hasDeadline(pod) != hasDeadline(old)
	}
	return a.GetOperation() == admission.Create
}

// Matches implements quota.Evaluator.
func (e podEvaluator) Matches(q *corev1.ResourceQuota, obj runtime.Object) (bool, error) {
	return generic.Matches(q, obj, e.MatchingResources, e.inScope)
}

// MatchingScopes implements quota.Evaluator.
func (e podEvaluator) MatchingScopes(obj runtime.Object, scopes []corev1.ScopedResourceSelectorRequirement) ([]corev1.ScopedResourceSelectorRequirement, error) {
	return matching(obj, scopes, e.inScope)
}

// UncoveredQuotaScopes implements quota.Evaluator.
func (podEvaluator) UncoveredQuotaScopes(limited, covered []corev1.ScopedResourceSelectorRequirement) ([]corev1.ScopedResourceSelectorRequirement, error) {
	return uncovered(limited, covered)
}

// MatchingResources implements quota.Evaluator.
func (podEvaluator) MatchingResources(names []corev1.ResourceName) []corev1.ResourceName {
	out := quota.Intersection(names, []corev1.ResourceName{
		objectCount("", "pods"), corev1.ResourcePods,
		corev1.ResourceCPU, corev1.ResourceRequestsCPU, corev1.ResourceLimitsCPU,
		corev1.ResourceMemory, corev1.ResourceRequestsMemory, corev1.ResourceLimitsMemory,
		corev1.ResourceEphemeralStorage, corev1.ResourceRequestsEphemeralStorage, corev1.ResourceLimitsEphemeralStorage,
	})
	for _, name := range names {
		if strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) ||
			strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix) || isRequestOfExtended(name) {
			out = append(out, name)
		}
	}
	return out
}

// isRequestOfExtended reports whether a quota limits the requests of an extended resource by this name.
func isRequestOfExtended(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix) &&
		(!podspec.IsNativeResource(name) || strings.HasPrefix(string(name), corev1.ResourceImplicitExtendedClaimsPerClass))
}

// Constraints implements quota.Evaluator. The error lists the containers that do not set a required resource.
func (e podEvaluator) Constraints(required []corev1.ResourceName, obj runtime.Object) error {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return unexpected("Pod", obj)
	}
	return podusage.Check(pod, required, e.gates)
}

// Usage implements quota.Evaluator.
func (e podEvaluator) Usage(obj runtime.Object) (corev1.ResourceList, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil, unexpected("Pod", obj)
	}
	return podusage.Of(pod, e.gates, e.clock), nil
}

// inScope reports whether a pod is in a scope of a quota.
func (e podEvaluator) inScope(scope corev1.ScopedResourceSelectorRequirement, obj runtime.Object) (bool, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return false, unexpected("Pod", obj)
	}
	switch scope.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return hasDeadline(pod), nil
	case corev1.ResourceQuotaScopeNotTerminating:
		return !hasDeadline(pod), nil
	case corev1.ResourceQuotaScopeBestEffort:
		return podspec.QOSClass(pod, e.gates) == corev1.PodQOSBestEffort, nil
	case corev1.ResourceQuotaScopeNotBestEffort:
		return podspec.QOSClass(pod, e.gates) != corev1.PodQOSBestEffort, nil
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return looksIntoOtherNamespaces(pod.Spec.Affinity), nil
	case corev1.ResourceQuotaScopePriorityClass:
		if pod.Spec.PriorityClassName == "" {
			return Selects(scope)
		}
		return Selects(scope, pod.Spec.PriorityClassName)
	case corev1.ResourceQuotaScopeVolumeAttributesClass:
		// A scope of PersistentVolumeClaims.
		return false, nil
	default:
		return false, nil
	}
}

// hasDeadline reports whether a pod is in the scope Terminating: it ends by itself.
func hasDeadline(pod *corev1.Pod) bool {
	return pod.Spec.ActiveDeadlineSeconds != nil && *pod.Spec.ActiveDeadlineSeconds >= 0
}

// looksIntoOtherNamespaces reports whether a term of the affinity or the anti-affinity to pods names namespaces.
func looksIntoOtherNamespaces(affinity *corev1.Affinity) bool {
	if affinity == nil {
		return false
	}
	var required []corev1.PodAffinityTerm
	var preferred []corev1.WeightedPodAffinityTerm
	if a := affinity.PodAffinity; a != nil {
		required, preferred = a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution
	}
	if a := affinity.PodAntiAffinity; a != nil {
		required = append(slices.Clip(required), a.RequiredDuringSchedulingIgnoredDuringExecution...)
		preferred = append(slices.Clip(preferred), a.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
	for i := range required {
		if crossesNamespaces(&required[i]) {
			return true
		}
	}
	for i := range preferred {
		if crossesNamespaces(&preferred[i].PodAffinityTerm) {
			return true
		}
	}
	return false
}

func crossesNamespaces(term *corev1.PodAffinityTerm) bool {
	return len(term.Namespaces) > 0 || term.NamespaceSelector != nil
}
