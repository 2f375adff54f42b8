// Package limitpodhardantiaffinitytopology limits required pod anti-affinity to the
// topology of a node. A pod that requires anti-affinity in a whole zone could keep
// the pods of all other users out of the zone. See README.md.
package limitpodhardantiaffinitytopology

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/postern-dev/postern/internal/kinds/podspec"
	"github.com/postern-dev/postern/pkg/admit"
)

// Plugin is LimitPodHardAntiAffinityTopology.
//
// Upstream: plugin/pkg/admission/antiaffinity.
var Plugin = &admit.Plugin{
	Name:  "LimitPodHardAntiAffinityTopology",
	Rules: []admit.Rule{admit.On("pods", admissionv1.Create, admissionv1.Update).If(podspec.WithoutContainers() + " || " + wide())},
	New: func(admit.Deps, []byte) (admit.Handler, error) {
		return admit.Handler{Validate: admit.Typed(validate)}, nil
	},
}

// wide is the CEL for a pod that the plugin denies.
func wide() string {
	terms := admit.CELList("object.spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution")
	return admit.CELAny(terms, "t", "t == null || !has(t.topologyKey) || t.topologyKey != '"+corev1.LabelHostname+"'")
}

func validate(_ context.Context, _ *admit.Request, pod, _ *corev1.Pod) error {
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.PodAntiAffinity == nil {
		return nil
	}
	for _, term := range affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		if term.TopologyKey != corev1.LabelHostname {
			// Upstream: the message has the name of the object, not of the request.
			return admit.Deny(apierrors.NewForbidden(corev1.Resource("pods"), pod.Name, fmt.Errorf(
				"affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey %v but only key %v is allowed", term.TopologyKey, corev1.LabelHostname)))
		}
	}
	return nil
}
