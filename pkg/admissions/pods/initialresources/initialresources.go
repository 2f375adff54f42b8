// Package initialresources requests the cpu and the memory that containers of the same image have used, for containers
// that specify neither a request nor a limit. See README.md.
package initialresources

import (
	"context"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/internal/kinds/podspec"
	"github.com/postern-dev/postern/pkg/admissions/pods/initialresources/internal/usage"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/access"
)

const (
	// patience is the longest time for which a data source delays a call. The API server calls twice for a pod that a
	// later webhook changes, so a data source delays a pod by at most 200 ms.
	patience = 100 * time.Millisecond
	// maxContainers is the largest number of containers of a pod that the plugin estimates.
	maxContainers = 100
)

// Plugin is InitialResources.
//
// Upstream: plugin/pkg/admission/initialresources in Kubernetes 1.10.
var Plugin = &admit.Plugin{
	Name: "InitialResources",
	// No condition: a webhook that is called later may add a container.
	Rules:        []admit.Rule{admit.On("pods", admissionv1.Create).In(admit.Mutating)},
	Flags:        []admit.Flag{dataSource(), percentile(), namespaceOnly()},
	Configurable: true,
	Access: access.Rules{
		access.Watch("autoscaling.k8s.io", "verticalpodautoscalers"), access.To("apps", "replicasets", "get"), access.To("batch", "jobs", "get"),
	},
	New: func(d admit.Deps, data []byte) (admit.Handler, error) {
		p, err := newPlugin(d, data)
		if err != nil {
			return admit.Handler{}, err
		}
		return admit.Handler{Mutate: admit.Typed(p.mutate)}, nil
	},
}

// estimator estimates the resources of containers.
type estimator interface {
	// estimate returns an amount for each want, in the unit of usage.Answer. The amount is 0 if there is no estimate.
	// When ctx ends, estimate returns the amounts that are known.
	estimate(ctx context.Context, namespace string, pod *corev1.Pod, wants []want) []int64
}

// want is a resource that a container does not specify.
type want struct {
	podspec.Container
	resource corev1.ResourceName
}

type plugin struct {
	estimator
	// maximum is the largest estimate that is used, by resource.
	maximum map[corev1.ResourceName]int64
}

// mutate never denies. It does not change a pod without an estimate.
func (p *plugin) mutate(ctx context.Context, r *admit.Request, pod, _ *corev1.Pod) error {
	wants := wantsOf(pod)
	if len(wants) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var set []want
	var amounts []int64
	for i, amount := range p.estimate(ctx, r.Namespace, pod, wants) {
		w := wants[i]
		if amount > p.maximum[w.resource] {
			klog.FromContext(ctx).V(2).Info("Ignored an estimate above the maximum", "container", w.Name, "resource", w.resource, "amount", amount)
			continue
		}
		if amount > 0 {
			set, amounts = append(set, w), append(amounts, amount)
		}
	}
	if len(set) == 0 || !annotate(pod, set) {
		return nil
	}
	for i, w := range set {
		if w.Resources.Requests == nil {
			w.Resources.Requests = corev1.ResourceList{}
		}
		w.Resources.Requests[w.resource] = usage.Quantity(w.resource, amounts[i])
	}
	return nil
}

// wantsOf returns the resources that the containers of a pod do not specify. It returns nothing for a pod with
// pod-level resources, because these bound the resources of its containers.
func wantsOf(pod *corev1.Pod) []want {
	if len(pod.Spec.InitContainers)+len(pod.Spec.Containers) > maxContainers {
		return nil
	}
	if all := pod.Spec.Resources; all != nil && len(all.Requests)+len(all.Limits) > 0 {
		return nil
	}
	var wants []want
	for c := range podspec.EachContainer(&pod.Spec, podspec.InitContainers, podspec.Containers) {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			_, requested := c.Resources.Requests[name]
			_, limited := c.Resources.Limits[name]
			if !requested && !limited {
				wants = append(wants, want{c, name})
			}
		}
	}
	return wants
}
