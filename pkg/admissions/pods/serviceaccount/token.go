package serviceaccount

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/postern-dev/postern/internal/kinds/podspec"
)

const (
	// tokenVolumePrefix starts the name of the volume with the token.
	tokenVolumePrefix = "kube-api-access-"
	// mountPath is where clients look for the token.
	mountPath = "/var/run/secrets/kubernetes.io/serviceaccount"
	// tokenSeconds is an hour and seven seconds. The API server recognises
	// automatically mounted tokens by this lifetime, and extends them.
	tokenSeconds = 60*60 + 7
)

// mountsToken reports whether to mount the account's token in the pod. The pod's
// setting overrides the account's.
func mountsToken(account *corev1.ServiceAccount, pod *corev1.Pod) bool {
	for _, say := range []*bool{pod.Spec.AutomountServiceAccountToken, account.AutomountServiceAccountToken} {
		if say != nil {
			return *say
		}
	}
	return true
}

// mountToken mounts the token in all containers without a mount at its path. It
// reuses a volume that an earlier call added, so that containers which were injected
// later share it.
func mountToken(spec *corev1.PodSpec) {
	// The API server accepts no longer name. Mounts of that name in all containers would take a multiple of the pod's size.
	isToken := func(v corev1.Volume) bool {
		return strings.HasPrefix(v.Name, tokenVolumePrefix) && len(v.Name) <= validation.DNS1123LabelMaxLength
	}
	name, exists := tokenVolumePrefix+utilrand.String(5), false
	if i := slices.IndexFunc(spec.Volumes, isToken); i >= 0 {
		name, exists = spec.Volumes[i].Name, true
	}
	needed := false
	for c := range podspec.EachContainer(spec, podspec.InitContainers, podspec.Containers) {
		if slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == mountPath }) {
			continue
		}
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, ReadOnly: true, MountPath: mountPath})
		needed = true
	}
	if needed && !exists {
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Projected: tokenSources()}})
	}
}

// tokenSources returns the sources of the token, the API server's CA and the
// namespace. It sets all defaults, so that the API server adds none.
func tokenSources() *corev1.ProjectedVolumeSource {
	return &corev1.ProjectedVolumeSource{
		DefaultMode: new(corev1.ProjectedVolumeSourceDefaultMode),
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
				Path: "token", ExpirationSeconds: new(int64(tokenSeconds)),
			}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
				Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
				Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"},
			}}}},
		},
	}
}
