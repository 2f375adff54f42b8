// Package extendedresourcetoleration adds tolerations to pods that request an
// extended resource, such as a GPU, for the nodes that are tainted with the name of
// the resource. See README.md.
package extendedresourcetoleration

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/postern-dev/postern/internal/kinds/podspec"
	"github.com/postern-dev/postern/internal/kinds/tolerations"
	"github.com/postern-dev/postern/pkg/admit"
)

// Plugin is ExtendedResourceToleration.
//
// Upstream: plugin/pkg/admission/extendedresourcetoleration.
var Plugin = &admit.Plugin{
	Name: "ExtendedResourceToleration",
	Rules: []admit.Rule{
		// No condition: a webhook that is called later may inject a container.
		admit.On("pods", admissionv1.Create),
		admit.On("pods", admissionv1.Update).If(requests(podspec.Containers) + " || " + requests(podspec.InitContainers)),
	},
	Configurable: true,
	New: func(d admit.Deps, data []byte) (admit.Handler, error) {
		c, err := admit.LoadConfig[config](data)
		if err != nil {
			return admit.Handler{}, err
		}
		// The API server's own plugin has added the tolerations for requests of zero already.
		return admit.Handler{Mutate: admit.Typed(c.mutate), Warnings: d.Redundant("ExtendedResourceToleration", true)}, nil
	},
}

// requests is the CEL for a pod in which a container requests a resource that may be
// extended.
func requests(kind podspec.ContainerKind) string {
	extended := "name.contains('/') && !name.contains('" + corev1.ResourceDefaultNamespacePrefix + "')"
	return admit.CELAny(admit.CELList("object.spec."+string(kind)), "c",
		admit.CELAnyNested(admit.CELValue("c.resources.requests", "{}"), "name", extended))
}

func (c config) mutate(ctx context.Context, r *admit.Request, pod, _ *corev1.Pod) error {
	names := sets.New[string]()
	for container := range podspec.EachContainer(&pod.Spec, podspec.InitContainers, podspec.Containers) {
		for name, quantity := range container.Resources.Requests {
			if podspec.IsExtendedResource(name) && (!c.IgnoreZeroRequests || !quantity.IsZero()) {
				names.Insert(string(name))
			}
		}
	}
	if err := r.Grow(ctx, tolerations.Memory(len(names))); err != nil {
		return err
	}
	tolerate(&pod.Spec, names)
	return nil
}

// tolerate adds a toleration for each name. An existing toleration that differs only
// in its seconds is replaced.
func tolerate(spec *corev1.PodSpec, names sets.Set[string]) {
	missing := names.Clone()
	for i, t := range spec.Tolerations {
		if wanted := tolerationOf(t.Key); names.Has(t.Key) && wanted.MatchToleration(&t) {
			spec.Tolerations[i] = wanted
			missing.Delete(t.Key)
		}
	}
	for _, name := range sets.List(missing) {
		spec.Tolerations = append(spec.Tolerations, tolerationOf(name))
	}
}

func tolerationOf(name string) corev1.Toleration {
	return corev1.Toleration{Key: name, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
}
