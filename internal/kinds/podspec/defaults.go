package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// SetVolumeDefaults sets the defaults that the API server sets in a volume of a pod, but not the pull policy of an image,
// which depends on the tag.
//
// Upstream: pkg/apis/core/v1 SetObjectDefaults_Pod.
func SetVolumeDefaults(v *corev1.Volume) {
	if v.VolumeSource == (corev1.VolumeSource{}) {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	if v.HostPath != nil {
		setDefault(&v.HostPath.Type, corev1.HostPathUnset)
	}
	if v.Secret != nil {
		setDefault(&v.Secret.DefaultMode, corev1.SecretVolumeSourceDefaultMode)
	}
	if v.ConfigMap != nil {
		setDefault(&v.ConfigMap.DefaultMode, corev1.ConfigMapVolumeSourceDefaultMode)
	}
	if v.DownwardAPI != nil {
		setDefault(&v.DownwardAPI.DefaultMode, corev1.DownwardAPIVolumeSourceDefaultMode)
		setFileDefaults(v.DownwardAPI.Items)
	}
	if v.Projected != nil {
		setProjectedDefaults(v.Projected)
	}
	if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
		setClaimDefaults(&v.Ephemeral.VolumeClaimTemplate.Spec)
	}
	setNetworkDefaults(&v.VolumeSource)
}

// SetEnvDefaults sets the defaults that the API server sets in an environment variable of a pod.
//
// Upstream: pkg/apis/core/v1 SetObjectDefaults_Pod.
func SetEnvDefaults(e *corev1.EnvVar) {
	if e.ValueFrom == nil {
		return
	}
	setFieldDefaults(e.ValueFrom.FieldRef)
	if e.ValueFrom.FileKeyRef != nil {
		setDefault(&e.ValueFrom.FileKeyRef.Optional, false)
	}
}

// setDefault sets a field to a value if it is nil.
func setDefault[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

func setDefaultString[T ~string](field *T, value T) {
	if *field == "" {
		*field = value
	}
}

func setFieldDefaults(ref *corev1.ObjectFieldSelector) {
	if ref != nil {
		setDefaultString(&ref.APIVersion, "v1")
	}
}

func setFileDefaults(files []corev1.DownwardAPIVolumeFile) {
	for i := range files {
		setFieldDefaults(files[i].FieldRef)
	}
}

func setProjectedDefaults(p *corev1.ProjectedVolumeSource) {
	setDefault(&p.DefaultMode, corev1.ProjectedVolumeSourceDefaultMode)
	for i := range p.Sources {
		if s := &p.Sources[i]; s.DownwardAPI != nil {
			setFileDefaults(s.DownwardAPI.Items)
		}
		if s := &p.Sources[i]; s.ServiceAccountToken != nil {
			setDefault(&s.ServiceAccountToken.ExpirationSeconds, 60*60)
		}
	}
}

func setClaimDefaults(spec *corev1.PersistentVolumeClaimSpec) {
	setDefault(&spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	for _, list := range []corev1.ResourceList{spec.Resources.Limits, spec.Resources.Requests} {
		for name, quantity := range list {
			quantity.RoundUp(resource.Milli)
			list[name] = quantity
		}
	}
}

// setNetworkDefaults sets the defaults of network storage.
func setNetworkDefaults(v *corev1.VolumeSource) {
	if v.ISCSI != nil {
		setDefaultString(&v.ISCSI.ISCSIInterface, "default")
	}
	if v.RBD != nil {
		setDefaultString(&v.RBD.RBDPool, "rbd")
		setDefaultString(&v.RBD.RadosUser, "admin")
		setDefaultString(&v.RBD.Keyring, "/etc/ceph/keyring")
	}
	if v.AzureDisk != nil {
		setDefault(&v.AzureDisk.CachingMode, corev1.AzureDataDiskCachingReadWrite)
		setDefault(&v.AzureDisk.FSType, "ext4")
		setDefault(&v.AzureDisk.ReadOnly, false)
		setDefault(&v.AzureDisk.Kind, corev1.AzureSharedBlobDisk)
	}
	if v.ScaleIO != nil {
		setDefaultString(&v.ScaleIO.StorageMode, "ThinProvisioned")
		setDefaultString(&v.ScaleIO.FSType, "xfs")
	}
}
