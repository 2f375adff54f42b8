// Package runtimeclass sets the overhead and the scheduling constraints of its
// RuntimeClass in a pod. See README.md.
package runtimeclass

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	nodev1client "k8s.io/client-go/kubernetes/typed/node/v1"
	nodev1listers "k8s.io/client-go/listers/node/v1"

	"github.com/postern-dev/postern/internal/kinds/tolerations"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/access"
)

// Plugin is RuntimeClass.
//
// Upstream: plugin/pkg/admission/runtimeclass.
var Plugin = &admit.Plugin{
	Name: "RuntimeClass",
	Rules: []admit.Rule{
		// No condition: a webhook that is called later may set the class.
		admit.On("pods", admissionv1.Create).In(admit.Mutating),
		admit.On("pods", admissionv1.Create).In(admit.Validating).If(
			admit.CELValue("object.spec.runtimeClassName", "null") + " != null || " + admit.CELValue("object.spec.overhead", "null") + " != null"),
	},
	Access: access.Rules{access.Lookup("node.k8s.io", "runtimeclasses")},
	New: func(d admit.Deps, _ []byte) (admit.Handler, error) {
		informer := d.Informers.Node().V1().RuntimeClasses()
		informer.Informer()
		c := &classes{lister: informer.Lister(), client: d.Client.NodeV1().RuntimeClasses()}
		return admit.Handler{Mutate: admit.Typed(c.mutate), Validate: admit.Typed(c.validate)}, nil
	},
}

type classes struct {
	lister nodev1listers.RuntimeClassLister
	client nodev1client.RuntimeClassInterface
}

func (c *classes) mutate(ctx context.Context, r *admit.Request, pod, _ *corev1.Pod) error {
	class, err := c.of(ctx, r, pod)
	if err != nil || class == nil {
		return err
	}
	if class.Overhead != nil {
		if len(pod.Spec.Overhead) > 0 && !apiequality.Semantic.DeepEqual(class.Overhead.PodFixed, pod.Spec.Overhead) {
			return otherOverhead(r)
		}
		pod.Spec.Overhead = class.Overhead.PodFixed.DeepCopy()
	}
	if class.Scheduling != nil {
		return schedule(ctx, r, &pod.Spec, class.Scheduling.DeepCopy())
	}
	return nil
}

// schedule adds the node selector and the tolerations of the class to a pod.
func schedule(ctx context.Context, r *admit.Request, spec *corev1.PodSpec, class *nodev1.Scheduling) error {
	for _, key := range slices.Sorted(maps.Keys(class.NodeSelector)) {
		want := class.NodeSelector[key]
		if got, ok := spec.NodeSelector[key]; ok && got != want {
			return admit.Forbidden(r, fmt.Errorf("conflict: runtimeClass.scheduling.nodeSelector[%s] = %s; pod.spec.nodeSelector[%s] = %s", key, want, key, got))
		}
		if spec.NodeSelector == nil {
			spec.NodeSelector = map[string]string{}
		}
		spec.NodeSelector[key] = want
	}
	end, err := admit.Hold(ctx, tolerations.MergeMemory(len(spec.Tolerations)+len(class.Tolerations)))
	if err != nil {
		return err
	}
	defer end()
	// Upstream: the lists are merged even if the class has no tolerations. The merge
	// drops a toleration of the pod that another toleration covers.
	spec.Tolerations = tolerations.Merge(spec.Tolerations, class.Tolerations)
	return nil
}

// validate denies an overhead other than the overhead of the class. The scheduler
// trusts the overhead, so users must not choose it.
func (c *classes) validate(ctx context.Context, r *admit.Request, pod, _ *corev1.Pod) error {
	class, err := c.of(ctx, r, pod)
	switch {
	case err != nil:
		return err
	case class != nil && class.Overhead != nil:
		if !apiequality.Semantic.DeepEqual(class.Overhead.PodFixed, pod.Spec.Overhead) {
			return otherOverhead(r)
		}
	case pod.Spec.Overhead != nil:
		return admit.Forbidden(r, errors.New("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"))
	}
	return nil
}

func otherOverhead(r *admit.Request) error {
	return admit.Forbidden(r, errors.New("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"))
}

// of returns the class of a pod, or nil if the pod names none.
func (c *classes) of(ctx context.Context, r *admit.Request, pod *corev1.Pod) (*nodev1.RuntimeClass, error) {
	name := pod.Spec.RuntimeClassName
	if name == nil {
		return nil, nil
	}
	class, err := admit.Lookup(ctx, c.lister, c.client, *name)
	if apierrors.IsNotFound(err) {
		return nil, admit.Forbidden(r, fmt.Errorf("pod rejected: RuntimeClass %q not found", *name))
	}
	if err != nil {
		return nil, err
	}
	return class, nil
}
