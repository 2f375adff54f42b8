// Package podnodeselector adds the node selector of the namespace to every pod, and
// limits the pod's labels to the labels that the configuration allows in the
// namespace. See README.md.
package podnodeselector

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"

	"github.com/postern-dev/postern/internal/footprint"
	"github.com/postern-dev/postern/internal/kinds/annotations"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/access"
)

const name = "PodNodeSelector"

// annotation on a namespace holds the node selector of its pods.
const annotation = "scheduler.alpha.kubernetes.io/node-selector"

// Plugin is PodNodeSelector.
//
// Upstream: plugin/pkg/admission/podnodeselector.
var Plugin = &admit.Plugin{
	Name:         name,
	Rules:        []admit.Rule{admit.On("pods", admissionv1.Create)},
	Configurable: true,
	Access:       access.Rules{access.Lookup("", "namespaces")},
	New: func(d admit.Deps, data []byte) (admit.Handler, error) {
		selectors, err := load(data)
		if err != nil {
			return admit.Handler{}, err
		}
		p := &plugin{
			selectors:  selectors,
			namespaces: d.Informers.Core().V1().Namespaces().Lister(),
			live:       d.Client.CoreV1().Namespaces(),
		}
		return admit.Handler{
			Mutate: admit.Typed(p.mutate), Validate: admit.Typed(p.validate),
			Warnings: d.Redundant(name, len(selectors) == 0),
		}, nil
	},
}

type plugin struct {
	// selectors holds the cluster's default, and the labels that each namespace
	// allows.
	selectors  map[string]labels.Set
	namespaces corev1listers.NamespaceLister
	live       typedcorev1.NamespaceInterface
}

func (p *plugin) mutate(ctx context.Context, r *admit.Request, pod, _ *corev1.Pod) error {
	own, end, err := p.namespaceSelector(ctx, r)
	if err != nil {
		return err
	}
	defer end()
	if err := r.Grow(ctx, memoryOf(len(own)+len(pod.Spec.NodeSelector))); err != nil {
		return err
	}
	// On a conflict either value may win, because check denies the pod.
	merged := labels.Merge(own, pod.Spec.NodeSelector)
	if err := p.check(r, pod, own, merged); err != nil {
		return err
	}
	if len(merged) > len(pod.Spec.NodeSelector) {
		pod.Spec.NodeSelector = merged
	}
	return nil
}

func (p *plugin) validate(ctx context.Context, r *admit.Request, pod, _ *corev1.Pod) error {
	own, end, err := p.namespaceSelector(ctx, r)
	if err != nil {
		return err
	}
	defer end()
	return p.check(r, pod, own, pod.Spec.NodeSelector)
}

// check denies a pod that conflicts with the selector of its namespace, or whose
// resulting selector has a label that the namespace does not allow.
func (p *plugin) check(r *admit.Request, pod *corev1.Pod, own, merged labels.Set) error {
	if labels.Conflicts(own, pod.Spec.NodeSelector) {
		return forbidden(r, pod, "pod node label selector conflicts with its namespace node label selector")
	}
	allowed := p.selectors[r.Namespace]
	if len(allowed) == 0 {
		return nil
	}
	for key, value := range merged {
		if v, ok := allowed[key]; !ok || v != value {
			return forbidden(r, pod, "pod node label selector labels conflict with its namespace whitelist")
		}
	}
	return nil
}

// forbidden names the pod as kube-apiserver's plugin does: by its name, ignoring
// generateName.
func forbidden(r *admit.Request, pod *corev1.Pod, why string) error {
	resource := corev1.Resource(r.Resource.Resource)
	return admit.Deny(apierrors.NewForbidden(resource, pod.Name, errors.New(why)))
}

// namespaceSelector returns the selector in the namespace's annotation, which may be
// empty. A namespace without the annotation has the cluster's default. The memory of the selector is held until end is called.
func (p *plugin) namespaceSelector(ctx context.Context, r *admit.Request) (selector labels.Set, end func(), err error) {
	ns, err := admit.Lookup(ctx, p.namespaces, p.live, r.Namespace)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil, admit.ForbiddenAs(r, apierrors.NewInternalError(fmt.Errorf("namespace %s does not exist", r.Namespace)))
	case err != nil:
		return nil, nil, err
	}
	text, ok := ns.Annotations[annotation]
	if !ok {
		return p.selectors[clusterDefault], func() {}, nil
	}
	// An annotation of 256 KiB becomes 4 MiB.
	if end, err = admit.Hold(ctx, memoryOf(1+strings.Count(text, ","))); err != nil {
		return nil, nil, err
	}
	if selector, err = labels.ConvertSelectorToLabelsMap(text); err != nil {
		end()
		return nil, nil, annotations.Unreadable(r, name, annotation, err)
	}
	return selector, end, nil
}

// memoryOf returns the memory of n labels in bytes, without their text.
func memoryOf(n int) int64 { return footprint.OfMap(reflect.TypeFor[labels.Set](), n) }
