// Package storageobjectinuseprotection puts the finalizers on volumes, claims and
// classes of volume attributes that keep those in use from going away. See
// README.md.
package storageobjectinuseprotection

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/component-base/featuregate"

	"github.com/postern-dev/postern/pkg/admissions/admit"
)

// Controllers of kube-controller-manager take the finalizers off.
const (
	volumeFinalizer = "kubernetes.io/pv-protection"
	claimFinalizer  = "kubernetes.io/pvc-protection"
	classFinalizer  = "kubernetes.io/vac-protection"
)

const gate featuregate.Feature = "VolumeAttributesClass"

// Plugin is StorageObjectInUseProtection.
//
// Upstream: plugin/pkg/admission/storage/storageobjectinuseprotection.
var Plugin = &admit.Plugin{
	Name: "StorageObjectInUseProtection",
	Rules: []admit.Rule{
		protecting("", "persistentvolumes", volumeFinalizer),
		protecting("", "persistentvolumeclaims", claimFinalizer),
	},
	Features: map[featuregate.Feature]featuregate.FeatureSpec{gate: {Default: true, PreRelease: featuregate.GA}},
	New: func(d admit.Deps, data []byte) (admit.Handler, error) {
		if err := admit.NoConfig(data); err != nil {
			return admit.Handler{}, err
		}
		h := admit.Handler{Mutate: mutate}
		if d.Features.Enabled(gate) {
			// Only v1: API servers that have none may lack the controller that takes
			// the finalizer off, and then no class could ever be deleted.
			h.Rules = []admit.Rule{protecting(storagev1.GroupName, "volumeattributesclasses", classFinalizer)}
		}
		return h, nil
	},
}

func protecting(group, resource, finalizer string) admit.Rule {
	return admit.Rule{
		Phase: admit.Mutating, Group: group, Resources: []string{resource}, Operations: []admissionv1.Operation{admissionv1.Create},
		Condition: admit.CELWithoutFinalizer(finalizer),
	}
}

func mutate(_ context.Context, r *admit.Request) error {
	switch r.Resource.Resource {
	case "persistentvolumes":
		return admit.AddFinalizer(r, volumeFinalizer)
	case "persistentvolumeclaims":
		return admit.AddFinalizer(r, claimFinalizer)
	}
	return admit.AddFinalizer(r, classFinalizer)
}
