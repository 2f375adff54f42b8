package priority

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/component-base/featuregate"

	"github.com/postern-dev/postern/pkg/admit"
)

const (
	genericWorkload          featuregate.Feature = "GenericWorkload"
	compositePodGroup        featuregate.Feature = "CompositePodGroup"
	podGroupPreemptionPolicy featuregate.Feature = "PodGroupPreemptionPolicy"
	// topologyAwareWorkloadScheduling has no effect here. Postern accepts it because
	// kube-apiserver requires it together with CompositePodGroup, so that users can
	// copy kube-apiserver's --feature-gates.
	topologyAwareWorkloadScheduling featuregate.Feature = "TopologyAwareWorkloadScheduling"
)

func gates() map[featuregate.Feature]featuregate.FeatureSpec {
	return map[featuregate.Feature]featuregate.FeatureSpec{
		genericWorkload:                 {Default: false, PreRelease: featuregate.Beta},
		compositePodGroup:               {Default: false, PreRelease: featuregate.Alpha},
		podGroupPreemptionPolicy:        {Default: false, PreRelease: featuregate.Alpha},
		topologyAwareWorkloadScheduling: {Default: false, PreRelease: featuregate.Alpha},
	}
}

// groupRules returns the rules for the group resources that the API server serves
// with these gates.
func groupRules(features featuregate.FeatureGate) []admit.Rule {
	rule := func(resource string, versions ...string) admit.Rule {
		return admit.On(resource, admissionv1.Create).Of(schedulingv1.GroupName, versions...).In(admit.Mutating)
	}
	var rules []admit.Rule
	if features.Enabled(genericWorkload) {
		rules = append(rules, rule("podgroups", "v1beta1", "v1alpha3"))
	}
	if features.Enabled(compositePodGroup) {
		rules = append(rules, rule("compositepodgroups", "v1alpha3"))
	}
	return rules
}

// group sets the priority of a PodGroup or CompositePodGroup of any version.
func (p *priority) group(ctx context.Context, r *admit.Request) error {
	switch g := r.Object.(type) {
	case *schedulingv1beta1.PodGroup:
		return resolveGroup(ctx, p, r, "pod group", groupFields[schedulingv1beta1.PreemptionPolicy]{&g.Spec.PriorityClassName, &g.Spec.Priority, &g.Spec.PreemptionPolicy})
	case *schedulingv1alpha3.PodGroup:
		return resolveGroup(ctx, p, r, "pod group", groupFields[schedulingv1alpha3.PreemptionPolicy]{&g.Spec.PriorityClassName, &g.Spec.Priority, &g.Spec.PreemptionPolicy})
	case *schedulingv1alpha3.CompositePodGroup:
		return resolveGroup(ctx, p, r, "composite pod group", groupFields[schedulingv1alpha3.PreemptionPolicy]{&g.Spec.PriorityClassName, &g.Spec.Priority, &g.Spec.PreemptionPolicy})
	}
	return admit.Deny(apierrors.NewBadRequest(fmt.Sprintf("resource was marked with kind %s but was unable to be converted", r.Kind.Kind)))
}

// groupFields are the fields of a group that depend on its class. P is the
// preemption policy type of the group's version.
type groupFields[P ~string] struct {
	class    *string
	priority **int32
	policy   **P
}

func resolveGroup[P ~string](ctx context.Context, p *priority, r *admit.Request, kind string, f groupFields[P]) error {
	class, err := p.class(ctx, r, *f.class)
	if err != nil {
		return err
	}
	if got := *f.priority; got != nil && *got != class.value {
		return admit.Forbidden(r, fmt.Errorf("priority set in the %s (%d) must match the priority computed (%d) based on the priority class set in the spec", kind, *got, class.value))
	}
	*f.class, *f.priority = class.name, new(class.value)
	if !p.groupPolicies || class.policy == nil {
		return nil
	}
	if *class.policy != corev1.PreemptLowerPriority && *class.policy != corev1.PreemptNever {
		return admit.Forbidden(r, fmt.Errorf("preemptionPolicy set in the PriorityClass object (%v) must match one of the allowed values of PreemptionPolicy type in %s", *class.policy, kind))
	}
	policy := P(*class.policy)
	if got := *f.policy; got != nil && *got != policy {
		return admit.Forbidden(r, fmt.Errorf("the string value of PreemptionPolicy (%s) must not be provided in %s spec; priority admission controller computed %s from the given PriorityClass name", *got, kind, policy))
	}
	*f.policy = &policy
	return nil
}
