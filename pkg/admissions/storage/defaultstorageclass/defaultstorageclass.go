// Package defaultstorageclass gives claims that ask for no storage class that of
// the cluster. See README.md.
package defaultstorageclass

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	storagev1listers "k8s.io/client-go/listers/storage/v1"

	"github.com/postern-dev/postern/pkg/admissions/admit"
)

// The annotations of a class that is the default one.
const (
	isDefault     = "storageclass.kubernetes.io/is-default-class"
	isDefaultBeta = "storageclass.beta.kubernetes.io/is-default-class"
)

// Plugin is DefaultStorageClass.
//
// Upstream: plugin/pkg/admission/storage/storageclass/setdefault.
var Plugin = &admit.Plugin{
	Name:  "DefaultStorageClass",
	Rules: []admit.Rule{admit.On("persistentvolumeclaims", admissionv1.Create).In(admit.Mutating).If(unclassed())},
	New: func(d admit.Deps, data []byte) (admit.Handler, error) {
		if err := admit.NoConfig(data); err != nil {
			return admit.Handler{}, err
		}
		p := &plugin{d.Informers.Storage().V1().StorageClasses().Lister()}
		return admit.Handler{Mutate: admit.Typed(p.mutate)}, nil
	},
}

// unclassed is the CEL for a claim that asks for no class.
func unclassed() string {
	return admit.CELValue("object.spec.storageClassName", "null") + " == null && " +
		"!('" + corev1.BetaStorageClassAnnotation + "' in " + admit.CELValue("object.metadata.annotations", "{}") + ")"
}

type plugin struct {
	classes storagev1listers.StorageClassLister
}

func (p *plugin) mutate(_ context.Context, r *admit.Request, claim, _ *corev1.PersistentVolumeClaim) error {
	// An empty name, too, was asked for: it is that of volumes without a class.
	if _, asked := claim.Annotations[corev1.BetaStorageClassAnnotation]; asked || claim.Spec.StorageClassName != nil {
		return nil
	}
	classes, err := p.classes.List(labels.Everything())
	if err != nil {
		return admit.Forbidden(r, err)
	}
	if name := admit.DefaultClass(classes, isDefault, isDefaultBeta); name != "" {
		claim.Spec.StorageClassName = &name
	}
	return nil
}
