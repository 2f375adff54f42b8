// Package persistentvolumeclaimresize denies the expansion of a claim unless the claim is bound and its class
// allows expansion. See README.md.
package persistentvolumeclaimresize

import (
	"context"
	"errors"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	storagev1client "k8s.io/client-go/kubernetes/typed/storage/v1"
	storagev1listers "k8s.io/client-go/listers/storage/v1"

	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/access"
)

// Plugin is PersistentVolumeClaimResize.
//
// Upstream: plugin/pkg/admission/storage/persistentvolume/resize.
var Plugin = &admit.Plugin{
	Name:   "PersistentVolumeClaimResize",
	Rules:  []admit.Rule{admit.On("persistentvolumeclaims", admissionv1.Update).In(admit.Validating).If(resized())},
	Access: access.Rules{access.Lookup("storage.k8s.io", "storageclasses")},
	New: func(d admit.Deps, _ []byte) (admit.Handler, error) {
		p := &plugin{d.Informers.Storage().V1().StorageClasses().Lister(), d.Client.StorageV1().StorageClasses()}
		return admit.Handler{Validate: admit.Typed(p.validate)}, nil
	},
}

// resized is the CEL expression for a claim whose requested size has a different text. Quantities are strings
// in CEL, so the plugin compares their values.
func resized() string {
	return admit.CELValue("object.spec.resources.requests.storage", "null") + " != " +
		admit.CELValue("oldObject.spec.resources.requests.storage", "null")
}

type plugin struct {
	classes storagev1listers.StorageClassLister
	live    storagev1client.StorageClassInterface
}

func (p *plugin) validate(ctx context.Context, r *admit.Request, claim, old *corev1.PersistentVolumeClaim) error {
	if old == nil || claim.Spec.Resources.Requests.Storage().Cmp(*old.Spec.Resources.Requests.Storage()) <= 0 {
		return nil
	}
	if old.Status.Phase != corev1.ClaimBound {
		return admit.Forbidden(r, errors.New("Only bound persistent volume claims can be expanded")) //nolint:staticcheck // kube-apiserver's words
	}
	expandable, err := p.expandable(ctx, classOf(claim), classOf(old))
	if err != nil {
		return err
	}
	if !expandable {
		return admit.Forbidden(r, errors.New("only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"))
	}
	return nil
}

// expandable reports whether the class is unchanged and allows volume expansion.
func (p *plugin) expandable(ctx context.Context, name, old string) (bool, error) {
	if name == "" || name != old {
		return false, nil
	}
	class, err := admit.Lookup(ctx, p.classes, p.live, name)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return class.AllowVolumeExpansion != nil && *class.AllowVolumeExpansion, nil
}

// classOf prefers the annotation, even an empty one, to the field, as all of Kubernetes does.
func classOf(claim *corev1.PersistentVolumeClaim) string {
	if name, ok := claim.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return name
	}
	if name := claim.Spec.StorageClassName; name != nil {
		return *name
	}
	return ""
}
