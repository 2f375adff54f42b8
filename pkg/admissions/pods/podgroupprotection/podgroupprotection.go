// Package podgroupprotection keeps a PodGroup from being deleted while pods are in
// it. See README.md.
package podgroupprotection

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/component-base/featuregate"

	"github.com/postern-dev/postern/pkg/admissions/admit"
)

const (
	// finalizer is taken off by a controller of kube-controller-manager.
	finalizer = schedulingv1beta1.GroupName + "/podgroup-protection"

	genericWorkload featuregate.Feature = "GenericWorkload"
)

// Plugin is PodGroupProtection.
//
// Upstream: plugin/pkg/admission/scheduling/podgroupprotection.
var Plugin = &admit.Plugin{
	Name: "PodGroupProtection",
	Rules: []admit.Rule{{
		Group: schedulingv1beta1.GroupName, Versions: []string{"v1beta1", "v1alpha3"}, Resources: []string{"podgroups"},
		Operations: []admissionv1.Operation{admissionv1.Create},
		Condition:  admit.CELWithoutFinalizer(finalizer),
	}},
	Features: map[featuregate.Feature]featuregate.FeatureSpec{genericWorkload: {Default: false, PreRelease: featuregate.Beta}},
	New: func(d admit.Deps, data []byte) (admit.Handler, error) {
		if err := admit.NoConfig(data); err != nil {
			return admit.Handler{}, err
		}
		if !d.Features.Enabled(genericWorkload) {
			// Upstream: the plugin stays, and does nothing.
			return admit.Handler{Mutate: func(context.Context, *admit.Request) error { return nil }}, nil
		}
		return admit.Handler{Mutate: protect}, nil
	},
}

// protect does not look at the type: both versions have the same metadata.
func protect(_ context.Context, r *admit.Request) error { return admit.AddFinalizer(r, finalizer) }
