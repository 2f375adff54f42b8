// Package podtolerationrestriction adds the tolerations of the namespace to every
// pod, and denies a pod whose tolerations exceed the whitelist. See README.md.
package podtolerationrestriction

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/component-base/featuregate"

	"github.com/postern-dev/postern/internal/footprint"
	"github.com/postern-dev/postern/internal/kinds/annotations"
	"github.com/postern-dev/postern/internal/kinds/podspec"
	"github.com/postern-dev/postern/internal/kinds/tolerations"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/access"
)

const name = "PodTolerationRestriction"

// The annotations of a namespace are JSON lists of tolerations. An empty annotation
// is an empty list. Without the annotation, the configuration applies.
const (
	defaultAnnotation   = "scheduler.alpha.kubernetes.io/defaultTolerations"
	whitelistAnnotation = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
)

// Plugin is PodTolerationRestriction.
//
// Upstream: plugin/pkg/admission/podtolerationrestriction.
var Plugin = &admit.Plugin{
	Name:         name,
	Rules:        []admit.Rule{admit.On("pods", admissionv1.Create, admissionv1.Update)},
	Features:     podspec.QOSFeatures(),
	Configurable: true,
	Access:       access.Rules{access.Lookup("", "namespaces")},
	New: func(d admit.Deps, data []byte) (admit.Handler, error) {
		c, err := load(data)
		if err != nil {
			return admit.Handler{}, err
		}
		p := &plugin{
			config:     c,
			features:   d.Features,
			namespaces: d.Informers.Core().V1().Namespaces().Lister(),
			live:       d.Client.CoreV1().Namespaces(),
		}
		return admit.Handler{
			Mutate: admit.Typed(p.mutate), Validate: admit.Typed(p.validate), Warnings: c.warnings(d),
		}, nil
	},
}

type plugin struct {
	config     config
	features   featuregate.FeatureGate
	namespaces corev1listers.NamespaceLister
	live       typedcorev1.NamespaceInterface
}

func (p *plugin) mutate(ctx context.Context, r *admit.Request, pod, old *corev1.Pod) error {
	var defaults []corev1.Toleration
	if r.Operation == admissionv1.Create {
		list, _, end, err := p.tolerations(ctx, r, defaultAnnotation, p.config.Default)
		if err != nil {
			return err
		}
		defer end()
		defaults = list
	}
	if err := p.add(ctx, r, pod, defaults); err != nil {
		return err
	}
	return p.validate(ctx, r, pod, old)
}

// add merges the defaults, and the toleration for pods that are not BestEffort, into the tolerations of the pod.
func (p *plugin) add(ctx context.Context, r *admit.Request, pod *corev1.Pod, defaults []corev1.Toleration) error {
	// The kubelet sets this taint on a node that runs out of memory. Only BestEffort
	// pods have to stay off such a node.
	mayStay := podspec.QOSClass(pod, p.features) != corev1.PodQOSBestEffort
	if r.Operation == admissionv1.Update && p.config.KeepRedundantOnUpdate {
		return addMemoryPressure(ctx, r, pod, mayStay)
	}
	if len(defaults) == 0 && !mayStay {
		return nil
	}
	before := len(pod.Spec.Tolerations)
	end, err := admit.Hold(ctx, tolerations.MergeMemory(before+len(defaults)+1)+tolerations.Memory(len(defaults)+1))
	if err != nil {
		return err
	}
	defer end()
	extra := make([]corev1.Toleration, 0, len(defaults)+1)
	for _, t := range defaults {
		// All requests share the configuration.
		extra = append(extra, *t.DeepCopy())
	}
	if mayStay {
		extra = append(extra, memoryPressure())
	}
	pod.Spec.Tolerations = tolerations.Merge(pod.Spec.Tolerations, extra)
	return r.Grow(ctx, tolerations.Memory(max(0, len(pod.Spec.Tolerations)-before)))
}

// addMemoryPressure appends the toleration of memory pressure if mayStay is true and no toleration covers it. All other
// tolerations and their order stay.
func addMemoryPressure(ctx context.Context, r *admit.Request, pod *corev1.Pod, mayStay bool) error {
	wanted, list := memoryPressure(), pod.Spec.Tolerations
	if !mayStay || slices.ContainsFunc(list, func(t corev1.Toleration) bool { return tolerations.Covers(t, wanted) }) {
		return nil
	}
	end, err := admit.Hold(ctx, tolerations.Memory(len(list)+1))
	if err != nil {
		return err
	}
	defer end()
	pod.Spec.Tolerations = slices.Concat(list, []corev1.Toleration{wanted})
	return r.Grow(ctx, tolerations.Memory(1))
}

func memoryPressure() corev1.Toleration {
	return corev1.Toleration{Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
}

func (p *plugin) validate(ctx context.Context, r *admit.Request, pod, _ *corev1.Pod) error {
	if len(pod.Spec.Tolerations) == 0 {
		return nil
	}
	whitelist, scope, endList, err := p.tolerations(ctx, r, whitelistAnnotation, p.config.Whitelist)
	if err != nil {
		return err
	}
	defer endList()
	if len(whitelist) == 0 {
		return nil
	}
	end, err := admit.Hold(ctx, tolerations.SetMemory(len(whitelist)))
	if err != nil {
		return err
	}
	defer end()
	allowed := tolerations.SetOf(whitelist)
	for i := range pod.Spec.Tolerations {
		if !allowed.Covers(&pod.Spec.Tolerations[i]) {
			return admit.ForbiddenAs(r, fmt.Errorf("pod tolerations (possibly merged with namespace default tolerations) conflict with its %s whitelist", scope))
		}
	}
	return nil
}

// tolerations returns the list in the namespace's annotation, or the cluster's list
// if the namespace has no annotation. It also returns where the list comes from. The memory of the list is held until end is called.
func (p *plugin) tolerations(ctx context.Context, r *admit.Request, annotation string, cluster []corev1.Toleration) (list []corev1.Toleration, scope string, end func(), err error) {
	ns, err := admit.Lookup(ctx, p.namespaces, p.live, r.Namespace)
	if apierrors.IsNotFound(err) {
		return nil, "", nil, admit.Deny(err)
	}
	if err != nil {
		return nil, "", nil, err
	}
	annotated, ok := ns.Annotations[annotation]
	if !ok {
		return cluster, "cluster", func() {}, nil
	}
	text := []byte(annotated)
	// An annotation of 256 KiB becomes 10 MiB.
	if end, err = admit.Hold(ctx, footprint.WithSpare(footprint.Of(text, reflect.TypeOf(list)))); err != nil {
		return nil, "", nil, err
	}
	if len(text) > 0 {
		if err := json.Unmarshal(text, &list); err != nil {
			end()
			return nil, "", nil, annotations.Unreadable(r, name, annotation, err)
		}
	}
	return list, "namespace", end, nil
}
