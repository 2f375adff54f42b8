package defaults

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

func volumeRules(r rules) {
	on(r, func(v *corev1.VolumeSource) {
		if *v == (corev1.VolumeSource{}) {
			v.EmptyDir = &corev1.EmptyDirVolumeSource{}
		}
	})
	on(r, func(v *corev1.ImageVolumeSource) { setPullPolicy(&v.PullPolicy, v.Reference) })
	on(r, func(v *corev1.HostPathVolumeSource) { set(&v.Type, corev1.HostPathUnset) })
	on(r, func(v *corev1.SecretVolumeSource) { set(&v.DefaultMode, corev1.SecretVolumeSourceDefaultMode) })
	on(r, func(v *corev1.ConfigMapVolumeSource) { set(&v.DefaultMode, corev1.ConfigMapVolumeSourceDefaultMode) })
	on(r, func(v *corev1.DownwardAPIVolumeSource) {
		set(&v.DefaultMode, corev1.DownwardAPIVolumeSourceDefaultMode)
	})
	on(r, func(v *corev1.ProjectedVolumeSource) { set(&v.DefaultMode, corev1.ProjectedVolumeSourceDefaultMode) })
	on(r, func(p *corev1.ServiceAccountTokenProjection) { set(&p.ExpirationSeconds, 60*60) })
	on(r, func(v *corev1.AzureDiskVolumeSource) {
		set(&v.CachingMode, corev1.AzureDataDiskCachingReadWrite)
		set(&v.FSType, "ext4")
		set(&v.ReadOnly, false)
		set(&v.Kind, corev1.AzureSharedBlobDisk)
	})
	on(r, func(v *corev1.ISCSIVolumeSource) { fill(&v.ISCSIInterface, "default") })
	on(r, func(v *corev1.ISCSIPersistentVolumeSource) { fill(&v.ISCSIInterface, "default") })
	on(r, func(v *corev1.RBDVolumeSource) { setRBD(&v.RBDPool, &v.RadosUser, &v.Keyring) })
	on(r, func(v *corev1.RBDPersistentVolumeSource) { setRBD(&v.RBDPool, &v.RadosUser, &v.Keyring) })
	on(r, func(v *corev1.ScaleIOVolumeSource) { setScaleIO(&v.StorageMode, &v.FSType) })
	on(r, func(v *corev1.ScaleIOPersistentVolumeSource) { setScaleIO(&v.StorageMode, &v.FSType) })

	on(r, func(c *corev1.PersistentVolumeClaim) { fill(&c.Status.Phase, corev1.ClaimPending) })
	on(r, func(s *corev1.PersistentVolumeClaimSpec) { set(&s.VolumeMode, corev1.PersistentVolumeFilesystem) })
	on(r, func(v *corev1.PersistentVolume) {
		fill(&v.Status.Phase, corev1.VolumePending)
		fill(&v.Spec.PersistentVolumeReclaimPolicy, corev1.PersistentVolumeReclaimRetain)
		set(&v.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	})
	on(r, func(c *storagev1.StorageClass) {
		set(&c.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)
		set(&c.VolumeBindingMode, storagev1.VolumeBindingImmediate)
	})
	on(r, func(s *storagev1.CSIDriverSpec) {
		set(&s.AttachRequired, true)
		set(&s.PodInfoOnMount, false)
		set(&s.StorageCapacity, false)
		set(&s.RequiresRepublish, false)
		set(&s.SELinuxMount, false)
		set(&s.PreventPodSchedulingIfMissing, false)
		set(&s.FSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
		if len(s.VolumeLifecycleModes) == 0 {
			s.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
		}
	})
}

func setRBD(pool, user, keyring *string) {
	fill(pool, "rbd")
	fill(user, "admin")
	fill(keyring, "/etc/ceph/keyring")
}

func setScaleIO(mode, fsType *string) {
	fill(mode, "ThinProvisioned")
	fill(fsType, "xfs")
}
