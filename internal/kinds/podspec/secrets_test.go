package podspec_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/postern-dev/postern/internal/kinds/podspec"
)

func TestSecretNames(t *testing.T) {
	ref := func(name string) *corev1.LocalObjectReference { return &corev1.LocalObjectReference{Name: name} }
	from := func(name string) []corev1.EnvFromSource {
		return []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{}}, {SecretRef: &corev1.SecretEnvSource{LocalObjectReference: *ref(name)}}}
	}
	env := func(name string) []corev1.EnvVar {
		key := &corev1.SecretKeySelector{LocalObjectReference: *ref(name)}
		return []corev1.EnvVar{{Value: "plain"}, {ValueFrom: &corev1.EnvVarSource{}}, {ValueFrom: &corev1.EnvVarSource{SecretKeyRef: key}}}
	}
	spec := corev1.PodSpec{
		ImagePullSecrets:    []corev1.LocalObjectReference{*ref("pull"), *ref("")},
		InitContainers:      []corev1.Container{{Env: env("init-env"), EnvFrom: from("init-from")}},
		Containers:          []corev1.Container{{Env: env("env"), EnvFrom: from("from")}},
		EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Env: env("debug-env"), EnvFrom: from("debug-from")}}},
	}
	for _, source := range []corev1.VolumeSource{
		{EmptyDir: &corev1.EmptyDirVolumeSource{}},
		{AzureFile: &corev1.AzureFileVolumeSource{SecretName: "azure"}},
		{CephFS: &corev1.CephFSVolumeSource{SecretRef: ref("ceph")}},
		{Cinder: &corev1.CinderVolumeSource{SecretRef: ref("cinder")}},
		{FlexVolume: &corev1.FlexVolumeSource{SecretRef: ref("flex")}},
		{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ConfigMap: &corev1.ConfigMapProjection{}}, {Secret: &corev1.SecretProjection{LocalObjectReference: *ref("projected")}},
		}}},
		{RBD: &corev1.RBDVolumeSource{SecretRef: ref("rbd")}},
		{Secret: &corev1.SecretVolumeSource{SecretName: "secret"}},
		{ScaleIO: &corev1.ScaleIOVolumeSource{SecretRef: ref("scaleio")}},
		{ISCSI: &corev1.ISCSIVolumeSource{SecretRef: ref("iscsi")}},
		{StorageOS: &corev1.StorageOSVolumeSource{SecretRef: ref("storageos")}},
		{CSI: &corev1.CSIVolumeSource{NodePublishSecretRef: ref("csi")}},
		{CSI: &corev1.CSIVolumeSource{}},
	} {
		spec.Volumes = append(spec.Volumes, corev1.Volume{VolumeSource: source})
	}
	want := []string{
		"pull", "init-from", "init-env", "from", "env", "debug-from", "debug-env",
		"azure", "ceph", "cinder", "flex", "projected", "rbd", "secret", "scaleio", "iscsi", "storageos", "csi",
	}
	if diff := cmp.Diff(podspec.SecretNames(&spec), want); diff != "" {
		t.Errorf("Names differ (- got, + want):\n%s", diff)
	}
}
