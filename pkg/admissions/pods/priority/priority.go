// Package priority sets the priority of pods and pod groups from their
// PriorityClass, and denies a second global default among PriorityClasses. See
// README.md.
package priority

import (
	"cmp"
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	schedulingv1client "k8s.io/client-go/kubernetes/typed/scheduling/v1"
	schedulingv1listers "k8s.io/client-go/listers/scheduling/v1"

	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/access"
)

// Plugin is Priority.
//
// Upstream: plugin/pkg/admission/priority.
var Plugin = &admit.Plugin{
	Name: "Priority",
	Rules: []admit.Rule{
		admit.On("pods", admissionv1.Create).In(admit.Mutating),
		admit.On("pods", admissionv1.Update).In(admit.Mutating).If(unresolved()),
		admit.On("priorityclasses", admissionv1.Create, admissionv1.Update).Of(schedulingv1.GroupName).In(admit.Validating).
			If(admit.CELValue("object.globalDefault", "false") + " != false"),
	},
	Features:     gates(),
	Configurable: true,
	Access:       access.Rules{access.Lookup("scheduling.k8s.io", "priorityclasses")},
	New:          newHandler,
}

func newHandler(d admit.Deps, data []byte) (admit.Handler, error) {
	c, err := admit.LoadConfig[config](data)
	if err != nil {
		return admit.Handler{}, err
	}
	informer := d.Informers.Scheduling().V1().PriorityClasses()
	informer.Informer()
	p := &priority{
		config: c, classes: informer.Lister(), client: d.Client.SchedulingV1().PriorityClasses(),
		groupPolicies: d.Features.Enabled(podGroupPreemptionPolicy),
	}
	pods := admit.Typed(p.pod)
	mutate := func(ctx context.Context, r *admit.Request) error {
		if r.Resource.Resource == "pods" {
			return pods(ctx, r)
		}
		return p.group(ctx, r)
	}
	return admit.Handler{
		Mutate: mutate, Validate: admit.Typed(p.validate), Rules: groupRules(d.Features),
		Warnings: d.Redundant("Priority", !c.ResetOnClassChange),
	}, nil
}

// unresolved is the CEL for an update that removes a field that the plugin set.
func unresolved() string {
	lost := func(field string) string {
		return admit.CELValue("object.spec."+field, "null") + " == null && " + admit.CELValue("oldObject.spec."+field, "null") + " != null"
	}
	return "oldObject == null || " + lost("priority") + " || " + lost("preemptionPolicy")
}

type priority struct {
	config  config
	classes schedulingv1listers.PriorityClassLister
	client  schedulingv1client.PriorityClassInterface
	// groupPolicies is true if pod groups have a preemption policy.
	groupPolicies bool
}

func (p *priority) pod(ctx context.Context, r *admit.Request, pod, old *corev1.Pod) error {
	if r.Operation == admissionv1.Update {
		return keep(pod, old)
	}
	class, err := p.class(ctx, r, pod.Spec.PriorityClassName)
	if err != nil {
		return err
	}
	if p.config.ResetOnClassChange && pod.Spec.PriorityClassName != "" {
		reset(r, &pod.Spec, class)
	}
	if got := pod.Spec.Priority; got != nil && *got != class.value {
		return admit.Forbidden(r, fmt.Errorf("the integer value of priority (%d) must not be provided in pod spec; priority admission controller computed %d from the given PriorityClass name", *got, class.value))
	}
	if got := pod.Spec.PreemptionPolicy; got != nil && class.policy != nil && *got != *class.policy {
		return admit.Forbidden(r, fmt.Errorf("the string value of PreemptionPolicy (%s) must not be provided in pod spec; priority admission controller computed %s from the given PriorityClass name", *got, *class.policy))
	}
	pod.Spec.PriorityClassName, pod.Spec.Priority = class.name, new(class.value)
	if class.policy != nil {
		pod.Spec.PreemptionPolicy = new(*class.policy)
	}
	return nil
}

// keep restores the fields that an update omits. It ignores other changes, because
// the API server denies them.
func keep(pod, old *corev1.Pod) error {
	if old == nil {
		return admit.Deny(apierrors.NewBadRequest("resource was marked with kind Pod but was unable to be converted"))
	}
	if pod.Spec.Priority == nil && old.Spec.Priority != nil {
		pod.Spec.Priority = new(*old.Spec.Priority)
	}
	if pod.Spec.PreemptionPolicy == nil && old.Spec.PreemptionPolicy != nil {
		pod.Spec.PreemptionPolicy = new(*old.Spec.PreemptionPolicy)
	}
	return nil
}

// reset clears a priority and a preemption policy that contradict the class of the
// pod, and records this in the audit log. The plugin then sets the values of the
// class, so no pod gets a priority that is not in a class.
func reset(r *admit.Request, spec *corev1.PodSpec, class resolved) {
	if got := spec.Priority; got != nil && *got != class.value {
		r.Audit("priority-reset", fmt.Sprintf("%d replaced by %d of PriorityClass %s", *got, class.value, class.name))
		spec.Priority = nil
	}
	if got := spec.PreemptionPolicy; got != nil && class.policy != nil && *got != *class.policy {
		r.Audit("preemption-policy-reset", fmt.Sprintf("%s replaced by %s of PriorityClass %s", *got, *class.policy, class.name))
		spec.PreemptionPolicy = nil
	}
}

// resolved holds the values of a class. The policy may be nil.
type resolved struct {
	name   string
	value  int32
	policy *corev1.PreemptionPolicy
}

// class returns the values of the named class, or of the global default if the name
// is empty. Without a global default it returns the default priority, zero.
func (p *priority) class(ctx context.Context, r *admit.Request, name string) (resolved, error) {
	if name == "" {
		class, err := p.globalDefault()
		if err != nil {
			return resolved{}, fmt.Errorf("looking for the default priority class: %w", err)
		}
		if class == nil {
			return resolved{policy: new(corev1.PreemptLowerPriority)}, nil
		}
		return resolved{class.Name, class.Value, class.PreemptionPolicy}, nil
	}
	class, err := admit.Lookup(ctx, p.classes, p.client, name)
	if apierrors.IsNotFound(err) {
		return resolved{}, admit.Forbidden(r, fmt.Errorf("no PriorityClass with name %v was found", name))
	}
	if err != nil {
		return resolved{}, err
	}
	return resolved{name, class.Value, class.PreemptionPolicy}, nil
}

// globalDefault returns the default class, or nil. Two classes that are created at
// the same time may both be defaults. The class with the lowest value wins.
func (p *priority) globalDefault() (*schedulingv1.PriorityClass, error) {
	classes, err := p.classes.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	var lowest *schedulingv1.PriorityClass
	for _, c := range classes {
		if c.GlobalDefault && (lowest == nil || cmp.Or(cmp.Compare(c.Value, lowest.Value), cmp.Compare(c.Name, lowest.Name)) < 0) {
			lowest = c
		}
	}
	return lowest, nil
}

// validate denies a second global default.
func (p *priority) validate(_ context.Context, r *admit.Request, class, _ *schedulingv1.PriorityClass) error {
	if !class.GlobalDefault {
		return nil
	}
	standing, err := p.globalDefault()
	if err != nil {
		return fmt.Errorf("looking for the default priority class: %w", err)
	}
	if standing == nil || (r.Operation == admissionv1.Update && standing.Name == class.Name) {
		return nil
	}
	return admit.Forbidden(r, fmt.Errorf("PriorityClass %v is already marked as default. Only one default can exist", standing.Name))
}
