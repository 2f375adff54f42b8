package podpreset

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/postern-dev/postern/internal/defaults"
	settingsv1alpha1 "github.com/postern-dev/postern/pkg/apis/settings/v1alpha1"
)

func envItems() items[corev1.EnvVar] {
	return items[corev1.EnvVar]{
		of:   func(s *settingsv1alpha1.PodPresetSpec) []corev1.EnvVar { return s.Env },
		keys: func(e *corev1.EnvVar) [2]key { return [2]key{{"env", e.Name}} },
		align: func(found, item *corev1.EnvVar) {
			defaults.Set(found)
			defaults.Set(item)
		},
	}
}

// envFromItems repeats a source that two presets have, as kube-apiserver did.
func envFromItems() items[corev1.EnvFromSource] {
	return items[corev1.EnvFromSource]{
		of: func(s *settingsv1alpha1.PodPresetSpec) []corev1.EnvFromSource { return s.EnvFrom },
		keys: func(e *corev1.EnvFromSource) [2]key {
			k := key{"envFrom", "", "", e.Prefix}
			if e.ConfigMapRef != nil {
				k[1] = e.ConfigMapRef.Name
			}
			if e.SecretRef != nil {
				k[2] = e.SecretRef.Name
			}
			return [2]key{k}
		},
		repeats: true,
	}
}

// mountItems allows a volume to have one mount in a container, as kube-apiserver did: another path is a conflict.
func mountItems() items[corev1.VolumeMount] {
	return items[corev1.VolumeMount]{
		of:   func(s *settingsv1alpha1.PodPresetSpec) []corev1.VolumeMount { return s.VolumeMounts },
		keys: func(m *corev1.VolumeMount) [2]key { return [2]key{{"volumeMount", m.Name}, {"mountPath", m.MountPath}} },
	}
}

func volumeItems() items[corev1.Volume] {
	return items[corev1.Volume]{
		of:   func(s *settingsv1alpha1.PodPresetSpec) []corev1.Volume { return s.Volumes },
		keys: func(v *corev1.Volume) [2]key { return [2]key{{"volume", v.Name}} },
		align: func(found, item *corev1.Volume) {
			alignPullPolicy(found.Image, item.Image)
			defaults.Set(found)
			defaults.Set(item)
		},
		loose: true,
	}
}

// alignPullPolicy gives an item without a policy that of the pod, and ignores the policy that AlwaysPullImages sets after this
// plugin. Without that, the plugin would conflict with itself when it is called again.
func alignPullPolicy(found, item *corev1.ImageVolumeSource) {
	if found != nil && item != nil && (item.PullPolicy == "" || found.PullPolicy == corev1.PullAlways) {
		item.PullPolicy = found.PullPolicy
	}
}
