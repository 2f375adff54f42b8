package podsecuritypolicy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/internal/kinds/podspec"
	"github.com/postern-dev/postern/pkg/admissions/pods/podsecuritypolicy/internal/strategies"
	policyv1 "github.com/postern-dev/postern/pkg/apis/policy/v1"
)

var errNoProviders = errors.New("PodSecurityPolicy: no providers available to validate pod request")

// search selects a policy for one request.
type search struct {
	uses *uses
	// hint is the name of the policy that is tried first.
	hint string
	// store returns the pod with the defaults of a policy that the request can store. complete has all defaults.
	store func(p *strategies.Policy, pod, complete *corev1.Pod) *corev1.Pod
	// byName is true if a policy that does not change the pod is not preferred.
	byName bool
}

// all is for requests that can store all defaults.
func all(_ *strategies.Policy, _, complete *corev1.Pod) *corev1.Pod { return complete }

// none is for requests that can store no defaults.
func none(_ *strategies.Policy, pod, _ *corev1.Pod) *corev1.Pod { return pod }

// newEphemeral is for requests that can store only the defaults in the added ephemeral containers.
func newEphemeral(old *corev1.Pod) func(p *strategies.Policy, pod, complete *corev1.Pod) *corev1.Pod {
	existing := sets.New[string]()
	if old != nil {
		for c := range podspec.EachContainer(&old.Spec, podspec.EphemeralContainers) {
			existing.Insert(c.Name)
		}
	}
	return func(p *strategies.Policy, pod, _ *corev1.Pod) *corev1.Pod {
		stored := pod.DeepCopy()
		for c := range podspec.EachContainer(&stored.Spec, podspec.EphemeralContainers) {
			if !existing.Has(c.Name) {
				p.DefaultContainer(stored, c)
			}
		}
		return stored
	}
}

// result is the outcome of a search.
type result struct {
	// policy admits the pod. It is nil if no policy does.
	policy *policyv1.PodSecurityPolicy
	// pod is the pod with the defaults of the policy.
	pod *corev1.Pod
	// violations are the violations of the policies that the user may use.
	violations field.ErrorList
	// lacking says which defaults of other such policies the pod lacks, and the request cannot store.
	lacking []string
	// unusable is true if no policy could admit any pod.
	unusable bool
}

// run returns the first policy that the user may use and that the pod satisfies unchanged, or else the first one that
// it satisfies with the defaults. With byName it returns the first one that it satisfies either way.
func (s search) run(ctx context.Context, items []*policyv1.PodSecurityPolicy, pod *corev1.Pod) (result, error) {
	first, violating := result{unusable: true}, map[string]field.ErrorList{}
	var lacking []*strategies.Policy
	s.sort(items)
	for _, item := range items {
		if err := ctx.Err(); err != nil {
			return result{}, err
		}
		policy, err := strategies.New(item)
		if err != nil {
			klog.FromContext(ctx).V(4).Info("Skipped a policy that no pod can satisfy", "policy", item.Name, "err", err)
			continue
		}
		first.unusable = false
		changed, errs := s.try(policy, pod)
		if len(errs) > 0 {
			violating[item.Name] = errs
			continue
		}
		if changed == nil {
			lacking = append(lacking, policy)
			continue
		}
		if first.policy != nil && changed != pod {
			continue
		}
		may, err := s.uses.may(ctx, item.Name)
		switch {
		case err != nil:
			return result{}, err
		case may && (changed == pod || s.byName):
			return result{policy: item, pod: changed}, nil
		case may:
			first = result{policy: item, pod: changed}
		}
	}
	if first.policy != nil {
		return first, nil
	}
	out, err := s.denied(ctx, items, violating, first)
	if err == nil {
		out.lacking = s.lacking(ctx, lacking, pod)
	}
	return out, err
}

// sort sorts by name, with the hint first.
func (s search) sort(items []*policyv1.PodSecurityPolicy) {
	rank := func(p *policyv1.PodSecurityPolicy) int {
		if p.Name == s.hint {
			return 0
		}
		return 1
	}
	slices.SortFunc(items, func(a, b *policyv1.PodSecurityPolicy) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Name, b.Name))
	})
}

// try returns the pod itself if it satisfies the policy unchanged, a changed copy if it satisfies the policy with the
// defaults, or nil if the request cannot store the defaults.
func (s search) try(policy *strategies.Policy, pod *corev1.Pod) (*corev1.Pod, field.ErrorList) {
	complete := pod.DeepCopy()
	policy.Default(complete)
	if errs := policy.Check(complete); len(errs) > 0 {
		return nil, errs
	}
	if apiequality.Semantic.DeepEqual(pod, complete) {
		return pod, nil
	}
	if stored := s.store(policy, pod, complete); stored == complete || apiequality.Semantic.DeepEqual(stored, complete) {
		return complete, nil
	}
	return nil, nil
}

// denied returns the violations of the policies that the user may use, in the order of the search. A user does not
// learn about other policies.
func (s search) denied(ctx context.Context, items []*policyv1.PodSecurityPolicy, violating map[string]field.ErrorList, out result) (result, error) {
	for _, item := range items {
		errs, ok := violating[item.Name]
		if !ok {
			continue
		}
		may, err := s.uses.may(ctx, item.Name)
		if err != nil {
			return result{}, err
		}
		if may {
			out.violations = append(out.violations, errs...)
		}
	}
	return out, nil
}

// maxAsked and maxLacking are the largest numbers of policies for which a user is asked about, and which a denial names,
// because the pod lacks their defaults.
const maxAsked, maxLacking = 10, 3

// lacking says which defaults of policies that the user may use the pod lacks and the request cannot store. The request is
// denied in any case, so an access review that fails must not make a failure of the denial.
func (s search) lacking(ctx context.Context, policies []*strategies.Policy, pod *corev1.Pod) []string {
	var out []string
	for _, policy := range policies[:min(len(policies), maxAsked)] {
		may, err := s.uses.may(ctx, policy.Name())
		if err != nil {
			return nil
		}
		if may {
			complete := pod.DeepCopy()
			policy.Default(complete)
			fields := strategies.Changes(s.store(policy, pod, complete), complete)
			out = append(out, fmt.Sprintf("the pod lacks defaults of policy %q: %s", policy.Name(), strings.Join(fields, ", ")))
		}
		if len(out) == maxLacking {
			break
		}
	}
	return out
}
