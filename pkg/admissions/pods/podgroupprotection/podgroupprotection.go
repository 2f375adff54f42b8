// Package podgroupprotection protects a PodGroup from deletion while it contains
// pods. See README.md.
package podgroupprotection

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/component-base/featuregate"

	"github.com/postern-dev/postern/internal/kinds/finalizers"
	"github.com/postern-dev/postern/pkg/admit"
)

const (
	// finalizer is removed by a controller of kube-controller-manager.
	finalizer = schedulingv1beta1.GroupName + "/podgroup-protection"

	genericWorkload featuregate.Feature = "GenericWorkload"
)

// Plugin is PodGroupProtection.
//
// Upstream: plugin/pkg/admission/scheduling/podgroupprotection.
var Plugin = &admit.Plugin{
	Name:     "PodGroupProtection",
	Rules:    []admit.Rule{admit.On("podgroups", admissionv1.Create).Of(schedulingv1beta1.GroupName, "v1beta1", "v1alpha3")},
	Features: map[featuregate.Feature]featuregate.FeatureSpec{genericWorkload: {Default: false, PreRelease: featuregate.Beta}},
	New: func(d admit.Deps, _ []byte) (admit.Handler, error) {
		if !d.Features.Enabled(genericWorkload) {
			return admit.Handler{}, nil
		}
		return admit.Handler{Mutate: protect}, nil
	},
}

// protect works for both versions of PodGroup, because it uses only the metadata.
func protect(_ context.Context, r *admit.Request) error { return finalizers.Add(r, finalizer) }
