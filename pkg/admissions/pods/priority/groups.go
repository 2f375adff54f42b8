package priority

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/component-base/featuregate"

	"github.com/postern-dev/postern/pkg/admissions/admit"
)

const (
	genericWorkload          featuregate.Feature = "GenericWorkload"
	compositePodGroup        featuregate.Feature = "CompositePodGroup"
	podGroupPreemptionPolicy featuregate.Feature = "PodGroupPreemptionPolicy"
	// topologyAwareWorkloadScheduling changes nothing here. kube-apiserver wants it
	// together with CompositePodGroup, and its flag can be taken over as it is.
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

// groupRules are those for the groups that the API server has with these gates.
func groupRules(features featuregate.FeatureGate) []admit.Rule {
	rule := func(resource string, versions ...string) admit.Rule {
		return admit.Rule{
			Phase: admit.Mutating, Group: schedulingv1.GroupName, Versions: versions, Resources: []string{resource},
			Operations: []admissionv1.Operation{admissionv1.Create},
		}
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

// group resolves the priority of a group of either kind, in any version.
func (p *priority) group(ctx context.Context, r *admit.Request) error {
	switch g := r.Object.(type) {
	case *schedulingv1beta1.PodGroup:
		return resolveGroup(ctx, p, r, "pod group", groupFields[schedulingv1beta1.PreemptionPolicy]{&g.Spec.PriorityClassName, &g.Spec.Priority, &g.Spec.PreemptionPolicy})
	case *schedulingv1alpha3.PodGroup:
		return resolveGroup(ctx, p, r, "pod group", groupFields[schedulingv1alpha3.PreemptionPolicy]{&g.Spec.PriorityClassName, &g.Spec.Priority, &g.Spec.PreemptionPolicy})
	case *schedulingv1alpha3.CompositePodGroup:
		return resolveGroup(ctx, p, r, "composite pod group", groupFields[schedulingv1alpha3.PreemptionPolicy]{&g.Spec.PriorityClassName, &g.Spec.Priority, &g.Spec.PreemptionPolicy})
	}
	return admit.BadRequest(fmt.Errorf("resource was marked with kind %s but was unable to be converted", r.Kind.Kind))
}

// groupFields are the fields of a group that a class decides. P is the version's
// own type of the policy.
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
