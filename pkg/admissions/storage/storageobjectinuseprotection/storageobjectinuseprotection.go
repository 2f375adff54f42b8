// Package storageobjectinuseprotection adds finalizers to volumes, claims and volume attributes classes, so
// that an object in use is not deleted. See README.md.
package storageobjectinuseprotection

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/component-base/featuregate"

	"github.com/postern-dev/postern/internal/kinds/finalizers"
	"github.com/postern-dev/postern/pkg/admit"
)

// Controllers of kube-controller-manager remove these finalizers.
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
		protecting("", "persistentvolumes"),
		protecting("", "persistentvolumeclaims"),
	},
	Features: map[featuregate.Feature]featuregate.FeatureSpec{gate: {Default: true, PreRelease: featuregate.GA}},
	New: func(d admit.Deps, _ []byte) (admit.Handler, error) {
		h := admit.Handler{Mutate: mutate}
		if d.Features.Enabled(gate) {
			// The rule names only v1: an API server without v1 may lack the controller that removes the
			// finalizer, and then no class could ever be deleted.
			h.Rules = []admit.Rule{protecting(storagev1.GroupName, "volumeattributesclasses")}
		}
		return h, nil
	},
}

// protecting returns a rule without a condition: a webhook that is called later may remove the finalizer, and
// few new objects have one.
func protecting(group, resource string) admit.Rule {
	return admit.On(resource, admissionv1.Create).Of(group)
}

func mutate(_ context.Context, r *admit.Request) error {
	switch r.Resource.Resource {
	case "persistentvolumes":
		return finalizers.Add(r, volumeFinalizer)
	case "persistentvolumeclaims":
		return finalizers.Add(r, claimFinalizer)
	}
	return finalizers.Add(r, classFinalizer)
}
