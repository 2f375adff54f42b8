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

	"github.com/postern-dev/postern/pkg/admit"
)

const (
	// maxDriverVolumes is the largest number of volumes of a pod whose CSI drivers are looked up, with up to three requests
	// each. No node attaches as many. Who creates a pod must not choose that the lookups take longer than the request.
	maxDriverVolumes = 256
	// maxAudience is the length in bytes up to which an access review asks for an audience. An API server refuses one of
	// megabytes.
	maxAudience = 64 << 10
)

// checkAudience denies a token for an audience that the pod does not request, unless the node is authorized
// to request that audience. An empty list of audiences means the audience of the API server.
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
	if len(audience) > maxAudience {
		return deny(r, "%s is not authorized to request tokens for an audience of %d bytes", r.UserInfo.Username, len(audience))
	}
	decision, err := n.ask(ctx, r, "request-serviceaccounts-token-audience", audience, r.Name)
	switch {
	case err != nil:
		return fmt.Errorf("authorizing %s to request tokens for audience %q: %w", r.UserInfo.Username, audience, err)
	case decision.Allowed:
		return nil
	case decision.EvaluationError != "":
		return deny(r, "error authorizing %s to request tokens for audience %q: %s", r.UserInfo.Username, audience, decision.EvaluationError)
	default:
		return deny(r, "%s is not authorized to request tokens for audience %q", r.UserInfo.Username, audience)
	}
}

// hasAudience reports whether the pod mounts a token for an audience, or a volume whose CSI driver requests
// that audience. A reference to a claim, volume or driver that does not exist is a denial, unless another
// volume has the audience.
func (n *nodeRestriction) hasAudience(ctx context.Context, r *admit.Request, pod *corev1.Pod, audience string) (bool, error) {
	// These volumes need no lookup.
	if slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return mountsToken(&v, audience) }) {
		return true, nil
	}
	var errs []error
	lookedUp := 0
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if !mayHaveDriver(v) {
			continue
		}
		if lookedUp++; lookedUp > maxDriverVolumes {
			return false, deny(r, "error validating audience %q: the pod has more than %d volumes that may have a CSI driver", audience, maxDriverVolumes)
		}
		has, err := n.driverHasAudience(ctx, pod, v, audience)
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

// mayHaveDriver reports whether a volume is of one of the types that driverOf knows.
func mayHaveDriver(v *corev1.Volume) bool {
	return v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil || v.PersistentVolumeClaim != nil || v.CSI != nil || csitranslation.New().IsInlineMigratable(v)
}

// driverOf returns the name of the CSI driver of a volume that may have one, or "" if the volume has none. An in-tree volume
// type is mapped to the CSI driver that replaced it.
func (n *nodeRestriction) driverOf(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) (string, error) {
	switch {
	case v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil:
		return n.driverOfClaim(ctx, pod.Namespace, ephemeral.VolumeClaimName(pod, v))
	case v.PersistentVolumeClaim != nil:
		return n.driverOfClaim(ctx, pod.Namespace, v.PersistentVolumeClaim.ClaimName)
	case v.CSI != nil:
		return v.CSI.Driver, nil
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

// driverOfVolume returns the CSI driver of a PersistentVolume, whose in-tree type may be migrated to CSI.
func driverOfVolume(volume *corev1.PersistentVolume, err error) (string, error) {
	if err != nil || volume == nil || volume.Spec.CSI == nil {
		return "", err
	}
	return volume.Spec.CSI.Driver, nil
}
