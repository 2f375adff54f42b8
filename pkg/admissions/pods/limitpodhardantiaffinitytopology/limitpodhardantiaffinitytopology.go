// Package limitpodhardantiaffinitytopology lets pods demand only that others stay
// off their node: who may demand a whole zone for a pod can keep everybody else
// out of it. See README.md.
package limitpodhardantiaffinitytopology

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/postern-dev/postern/pkg/admissions/admit"
)

// Plugin is LimitPodHardAntiAffinityTopology.
//
// Upstream: plugin/pkg/admission/antiaffinity.
var Plugin = &admit.Plugin{
	Name:  "LimitPodHardAntiAffinityTopology",
	Rules: []admit.Rule{admit.On("pods", admissionv1.Create, admissionv1.Update).If(noPod() + " || " + wide())},
	New: func(_ admit.Deps, data []byte) (admit.Handler, error) {
		if err := admit.NoConfig(data); err != nil {
			return admit.Handler{}, err
		}
		return admit.Handler{Validate: admit.Typed(validate)}, nil
	},
}

// noPod is the CEL for an object that has no containers, of which wide could say
// nothing.
func noPod() string { return "size(" + admit.CELList("object.spec.containers") + ") == 0" }

// wide is the CEL for a pod that is to be denied.
func wide() string {
	terms := admit.CELList("object.spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution")
	return fmt.Sprintf("%s.exists(t, t == null || !has(t.topologyKey) || t.topologyKey != '%s')", terms, corev1.LabelHostname)
}

func validate(_ context.Context, _ *admit.Request, pod, _ *corev1.Pod) error {
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.PodAntiAffinity == nil {
		return nil
	}
	for _, term := range affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		if term.TopologyKey != corev1.LabelHostname {
			// Upstream: the name is the object's, not the request's.
			return apierrors.NewForbidden(corev1.Resource("pods"), pod.Name, fmt.Errorf(
				"affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey %v but only key %v is allowed", term.TopologyKey, corev1.LabelHostname))
		}
	}
	return nil
}
