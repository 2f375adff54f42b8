// Package defaultstorageclass sets the default storage class on claims that request no class. See README.md.
package defaultstorageclass

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	storagev1listers "k8s.io/client-go/listers/storage/v1"

	"github.com/postern-dev/postern/internal/kinds/classes"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/access"
)

// These annotations mark the default class.
const (
	isDefault     = "storageclass.kubernetes.io/is-default-class"
	isDefaultBeta = "storageclass.beta.kubernetes.io/is-default-class"
)

// Plugin is DefaultStorageClass.
//
// Upstream: plugin/pkg/admission/storage/storageclass/setdefault.
var Plugin = &admit.Plugin{
	Name: "DefaultStorageClass",
	// The rule has no condition: a webhook that is called later may remove the class.
	Rules:  []admit.Rule{admit.On("persistentvolumeclaims", admissionv1.Create)},
	Access: access.Rules{access.Watch("storage.k8s.io", "storageclasses")},
	New: func(d admit.Deps, _ []byte) (admit.Handler, error) {
		p := &plugin{d.Informers.Storage().V1().StorageClasses().Lister()}
		return admit.Handler{Mutate: admit.Typed(p.mutate)}, nil
	},
}

type plugin struct {
	classes storagev1listers.StorageClassLister
}

func (p *plugin) mutate(_ context.Context, _ *admit.Request, claim, _ *corev1.PersistentVolumeClaim) error {
	// An empty name requests a volume without a class.
	if _, asked := claim.Annotations[corev1.BetaStorageClassAnnotation]; asked || claim.Spec.StorageClassName != nil {
		return nil
	}
	list, err := p.classes.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing StorageClasses: %w", err)
	}
	if name := classes.Default(list, isDefault, isDefaultBeta); name != "" {
		claim.Spec.StorageClassName = &name
	}
	return nil
}
