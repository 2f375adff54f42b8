package podspec

import corev1 "k8s.io/api/core/v1"

// SecretNames returns the Secrets that a pod names directly, in the order pull
// secrets, containers of all kinds, volumes. It omits Secrets that other objects
// name, such as the volume of a claim.
//
// Upstream: pkg/api/pod VisitPodSecretNames.
func SecretNames(spec *corev1.PodSpec) []string {
	var names []string
	add := func(name string) {
		if name != "" {
			names = append(names, name)
		}
	}
	for _, ref := range spec.ImagePullSecrets {
		add(ref.Name)
	}
	for c := range EachContainer(spec) {
		for _, from := range c.EnvFrom {
			if from.SecretRef != nil {
				add(from.SecretRef.Name)
			}
		}
		for _, env := range c.Env {
			if env.ValueFrom != nil && env.ValueFrom.SecretKeyRef != nil {
				add(env.ValueFrom.SecretKeyRef.Name)
			}
		}
	}
	for i := range spec.Volumes {
		for _, name := range volumeSecrets(&spec.Volumes[i].VolumeSource) {
			add(name)
		}
	}
	return names
}

// volumeSecrets returns the Secrets of one volume. A volume has exactly one source.
func volumeSecrets(source *corev1.VolumeSource) []string {
	var ref *corev1.LocalObjectReference
	switch {
	case source.AzureFile != nil:
		return []string{source.AzureFile.SecretName}
	case source.CephFS != nil:
		ref = source.CephFS.SecretRef
	case source.Cinder != nil:
		ref = source.Cinder.SecretRef
	case source.FlexVolume != nil:
		ref = source.FlexVolume.SecretRef
	case source.Projected != nil:
		var names []string
		for _, p := range source.Projected.Sources {
			if p.Secret != nil {
				names = append(names, p.Secret.Name)
			}
		}
		return names
	case source.RBD != nil:
		ref = source.RBD.SecretRef
	case source.Secret != nil:
		return []string{source.Secret.SecretName}
	case source.ScaleIO != nil:
		ref = source.ScaleIO.SecretRef
	case source.ISCSI != nil:
		ref = source.ISCSI.SecretRef
	case source.StorageOS != nil:
		ref = source.StorageOS.SecretRef
	case source.CSI != nil:
		ref = source.CSI.NodePublishSecretRef
	}
	if ref == nil {
		return nil
	}
	return []string{ref.Name}
}
