package usage

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	storagehelpers "k8s.io/component-helpers/storage/volume"
)

// storageClassInfix is in the names of resources that a quota limits for one StorageClass, such as
// gold.storageclass.storage.k8s.io/requests.storage.
const storageClassInfix = ".storageclass.storage.k8s.io/"

// volumeEvaluator measures PersistentVolumeClaims.
type volumeEvaluator struct{ base }

// GroupResource implements quota.Evaluator.
func (volumeEvaluator) GroupResource() schema.GroupResource {
	return schema.GroupResource{Resource: "persistentvolumeclaims"}
}

// Handles implements quota.Evaluator. A status may raise the allocated storage.
//
// Upstream: an update of a status is handled if the allocated storage or the VolumeAttributesClasses change. The
// storage is compared by pointer, so every update is handled.
func (volumeEvaluator) Handles(a admission.Attributes) bool {
	switch a.GetSubresource() {
	case "":
		return a.GetOperation() == admission.Create || a.GetOperation() == admission.Update
	case "status":
		_, isNew := a.GetObject().(*corev1.PersistentVolumeClaim)
		_, isOld := a.GetOldObject().(*corev1.PersistentVolumeClaim)
		return isNew && isOld
	}
	return false
}

// Matches implements quota.Evaluator.
func (e volumeEvaluator) Matches(q *corev1.ResourceQuota, obj runtime.Object) (bool, error) {
	return generic.Matches(q, obj, e.MatchingResources, volumeInScope)
}

// MatchingScopes implements quota.Evaluator.
func (volumeEvaluator) MatchingScopes(obj runtime.Object, scopes []corev1.ScopedResourceSelectorRequirement) ([]corev1.ScopedResourceSelectorRequirement, error) {
	return matching(obj, scopes, volumeInScope)
}

// UncoveredQuotaScopes implements quota.Evaluator.
func (volumeEvaluator) UncoveredQuotaScopes(limited, covered []corev1.ScopedResourceSelectorRequirement) ([]corev1.ScopedResourceSelectorRequirement, error) {
	return uncovered(limited, covered)
}

// MatchingResources implements quota.Evaluator.
func (volumeEvaluator) MatchingResources(names []corev1.ResourceName) []corev1.ResourceName {
	var out []corev1.ResourceName
	for _, name := range names {
		_, ofClass, has := strings.Cut(string(name), storageClassInfix)
		if !has {
			ofClass = string(name)
		}
		switch corev1.ResourceName(ofClass) {
		case corev1.ResourcePersistentVolumeClaims, corev1.ResourceRequestsStorage:
			out = append(out, name)
		default:
			if name == objectCount("", "persistentvolumeclaims") {
				out = append(out, name)
			}
		}
	}
	return out
}

// Usage implements quota.Evaluator.
func (volumeEvaluator) Usage(obj runtime.Object) (corev1.ResourceList, error) {
	claim, ok := obj.(*corev1.PersistentVolumeClaim)
	if !ok {
		return nil, unexpected("PersistentVolumeClaim", obj)
	}
	out := corev1.ResourceList{corev1.ResourcePersistentVolumeClaims: number(1)}
	if storage, ok := storageOf(claim); ok {
		out[corev1.ResourceRequestsStorage] = storage
	}
	if class := storagehelpers.GetPersistentVolumeClaimClass(claim); class != "" {
		for name, quantity := range out.DeepCopy() {
			out[corev1.ResourceName(class+storageClassInfix)+name] = quantity
		}
	}
	out[objectCount("", "persistentvolumeclaims")] = number(1)
	return out, nil
}

// storageOf returns the requested storage, or the allocated storage while a smaller volume is not yet there. It is a
// whole number of bytes, because the status of a quota must be.
func storageOf(claim *corev1.PersistentVolumeClaim) (resource.Quantity, bool) {
	storage, ok := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if !ok {
		return storage, false
	}
	if allocated, ok := claim.Status.AllocatedResources[corev1.ResourceStorage]; ok && allocated.Cmp(storage) > 0 {
		storage = allocated
	}
	if rounded := storage.DeepCopy(); !rounded.RoundUp(0) {
		return rounded, true
	}
	return storage, true
}

func volumeInScope(scope corev1.ScopedResourceSelectorRequirement, obj runtime.Object) (bool, error) {
	claim, ok := obj.(*corev1.PersistentVolumeClaim)
	if !ok {
		return false, unexpected("PersistentVolumeClaim", obj)
	}
	if scope.ScopeName != corev1.ResourceQuotaScopeVolumeAttributesClass {
		return false, nil
	}
	return Selects(scope, attributesClasses(claim)...)
}

// attributesClasses returns the VolumeAttributesClasses that a claim has, wants, or is changed to.
func attributesClasses(claim *corev1.PersistentVolumeClaim) []string {
	var names []string
	for _, name := range []*string{claim.Spec.VolumeAttributesClassName, claim.Status.CurrentVolumeAttributesClassName} {
		if name != nil {
			names = append(names, *name)
		}
	}
	if m := claim.Status.ModifyVolumeStatus; m != nil {
		names = append(names, m.TargetVolumeAttributesClassName)
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}
