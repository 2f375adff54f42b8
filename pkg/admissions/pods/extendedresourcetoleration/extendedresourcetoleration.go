// Package extendedresourcetoleration lets a pod that asks for an extended
// resource, such as a GPU, onto the nodes that are tainted with its name. See
// README.md.
package extendedresourcetoleration

import (
	"context"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/postern-dev/postern/pkg/admissions/admit"
)

// Plugin is ExtendedResourceToleration.
//
// Upstream: plugin/pkg/admission/extendedresourcetoleration.
var Plugin = &admit.Plugin{
	Name: "ExtendedResourceToleration",
	Rules: []admit.Rule{
		admit.On("pods", admissionv1.Create, admissionv1.Update).If(requests(admit.Containers) + " || " + requests(admit.InitContainers)),
	},
	New: func(_ admit.Deps, data []byte) (admit.Handler, error) {
		return admit.Handler{Mutate: admit.Typed(mutate)}, admit.NoConfig(data)
	},
}

// requests is the CEL for a pod in which a container asks for what may be an
// extended resource.
func requests(kind admit.ContainerKind) string {
	return admit.CELList("object.spec."+string(kind)) +
		".exists(c, has(c.resources) && c.resources != null && has(c.resources.requests) && c.resources.requests != null" +
		" && c.resources.requests.exists(name, name.contains('/') && !name.contains('" + corev1.ResourceDefaultNamespacePrefix + "')))"
}

func mutate(_ context.Context, _ *admit.Request, pod, _ *corev1.Pod) error {
	names := sets.New[string]()
	for c := range admit.EachContainer(&pod.Spec, admit.InitContainers, admit.Containers) {
		for name := range c.Resources.Requests {
			if isExtended(string(name)) {
				names.Insert(string(name))
			}
		}
	}
	for _, name := range sets.List(names) {
		tolerate(&pod.Spec, corev1.Toleration{Key: name, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})
	}
	return nil
}

// isExtended reports whether a resource is none of Kubernetes' own. Its name must
// be one that a quota can have.
//
// Upstream: IsExtendedResourceName in pkg/apis/core/helper.
func isExtended(name string) bool {
	own := !strings.Contains(name, "/") || strings.Contains(name, corev1.ResourceDefaultNamespacePrefix)
	return !own && !strings.HasPrefix(name, corev1.DefaultResourceRequestsPrefix) &&
		len(validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+name)) == 0
}

// tolerate adds a toleration, or puts it in the place of what differs from it in
// nothing but the seconds.
func tolerate(spec *corev1.PodSpec, wanted corev1.Toleration) {
	found := false
	for i := range spec.Tolerations {
		if wanted.MatchToleration(&spec.Tolerations[i]) {
			spec.Tolerations[i] = wanted
			found = true
		}
	}
	if !found {
		spec.Tolerations = append(spec.Tolerations, wanted)
	}
}
