package noderestriction

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/component-helpers/storage/ephemeral"
	csitranslation "k8s.io/csi-translation-lib"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/pkg/admissions/admit"
)

// checkAudience denies a token for an audience that the pod has nothing to do with,
// unless the node is authorized to ask for it. No audience is that of the API server.
func (n *nodeRestriction) checkAudience(ctx context.Context, r *admit.Request, audiences []string, pod *corev1.Pod) error {
	audience := ""
	switch len(audiences) {
	case 0:
	case 1:
		audience = audiences[0]
	default:
		return deny(r, "node may only request 0 or 1 audiences")
	}
	known, err := n.hasAudience(ctx, r, pod, audience)
	if known || err != nil {
		return err
	}
	allowed, err := n.may(ctx, r, "request-serviceaccounts-token-audience", audience, r.Name)
	switch {
	case err != nil:
		return fmt.Errorf("authorizing %s to request tokens for audience %q: %w", r.UserInfo.Username, audience, err)
	case !allowed:
		return deny(r, "%s is not authorized to request tokens for audience %q", r.UserInfo.Username, audience)
	}
	return nil
}

// hasAudience reports whether the pod mounts a token for an audience, or a volume
// whose driver gets one. A volume that leads to what does not exist is a denial,
// unless another one has the audience.
func (n *nodeRestriction) hasAudience(ctx context.Context, r *admit.Request, pod *corev1.Pod, audience string) (bool, error) {
	// These need no look at anything else.
	if slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return mountsToken(&v, audience) }) {
		return true, nil
	}
	var errs []error
	for i := range pod.Spec.Volumes {
		has, err := n.driverHasAudience(ctx, pod, &pod.Spec.Volumes[i], audience)
		if has {
			return true, nil
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		return false, nil
	}
	err := fmt.Errorf("error validating audience %q: %w", audience, utilerrors.NewAggregate(errs))
	if slices.ContainsFunc(errs, isLookupError) {
		return false, err
	}
	return false, admit.Forbidden(r, err)
}

func mountsToken(v *corev1.Volume, audience string) bool {
	return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool {
		return s.ServiceAccountToken != nil && s.ServiceAccountToken.Audience == audience
	})
}

func (n *nodeRestriction) driverHasAudience(ctx context.Context, pod *corev1.Pod, v *corev1.Volume, audience string) (bool, error) {
	name, err := n.driverOf(ctx, pod, v)
	if name == "" || err != nil {
		return false, err
	}
	driver, err := find(ctx, n.client.StorageV1().CSIDrivers(), storagev1.Resource("csidriver"), name)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(driver.Spec.TokenRequests, func(t storagev1.TokenRequest) bool { return t.Audience == audience }), nil
}

// driverOf returns the CSI driver of a volume, "" if it has none. The volumes that
// Kubernetes once had drivers of its own for have one too.
func (n *nodeRestriction) driverOf(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) (string, error) {
	switch {
	case v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil:
		return n.driverOfClaim(ctx, pod.Namespace, ephemeral.VolumeClaimName(pod, v))
	case v.PersistentVolumeClaim != nil:
		return n.driverOfClaim(ctx, pod.Namespace, v.PersistentVolumeClaim.ClaimName)
	case v.CSI != nil:
		return v.CSI.Driver, nil
	case !csitranslation.New().IsInlineMigratable(v):
		return "", nil
	}
	return driverOfVolume(csitranslation.New().TranslateInTreeInlineVolumeToCSI(klog.FromContext(ctx), v, pod.Namespace))
}

func (n *nodeRestriction) driverOfClaim(ctx context.Context, namespace, name string) (string, error) {
	claim, err := find(ctx, n.client.CoreV1().PersistentVolumeClaims(namespace), corev1.Resource("persistentvolumeclaim"), name)
	if err != nil {
		return "", err
	}
	volume, err := find(ctx, n.client.CoreV1().PersistentVolumes(), corev1.Resource("persistentvolume"), claim.Spec.VolumeName)
	if err != nil {
		return "", err
	}
	if volume.Spec.CSI == nil && csitranslation.New().IsPVMigratable(volume) {
		return driverOfVolume(csitranslation.New().TranslateInTreePVToCSI(klog.FromContext(ctx), volume))
	}
	return driverOfVolume(volume, nil)
}

// driverOfVolume returns the CSI driver of a volume that may have been translated.
func driverOfVolume(volume *corev1.PersistentVolume, err error) (string, error) {
	if err != nil || volume == nil || volume.Spec.CSI == nil {
		return "", err
	}
	return volume.Spec.CSI.Driver, nil
}
