package strategies

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/postern-dev/postern/internal/kinds/podspec"
)

// effective reads the security context of a container. A field that the container does not set has the value of the
// pod.
type effective struct {
	pod *corev1.PodSecurityContext
	own *corev1.SecurityContext
}

func effectiveIn(pod *corev1.Pod, c podspec.Container) effective {
	return effective{podContext(pod), context(c)}
}

func (e effective) runAsUser() *int64   { return either(e.own.RunAsUser, e.pod.RunAsUser) }
func (e effective) runAsGroup() *int64  { return either(e.own.RunAsGroup, e.pod.RunAsGroup) }
func (e effective) runAsNonRoot() *bool { return either(e.own.RunAsNonRoot, e.pod.RunAsNonRoot) }
func (e effective) seLinuxOptions() *corev1.SELinuxOptions {
	return either(e.own.SELinuxOptions, e.pod.SELinuxOptions)
}

// inherited is what containers take from their pod, apart from numbers. It is worked out once for all containers, because
// the texts may be long.
type inherited struct {
	seccomp, appArmor []string
	// labelled is true if the SELinux labels of the pod satisfy the policy.
	labelled bool
}

func either[T any](own, pod *T) *T {
	if own != nil {
		return own
	}
	return pod
}

// podContext returns the security context of a pod for reading.
func podContext(pod *corev1.Pod) *corev1.PodSecurityContext {
	if pod.Spec.SecurityContext == nil {
		return &corev1.PodSecurityContext{}
	}
	return pod.Spec.SecurityContext
}

// ownPodContext returns the security context of a pod for writing.
func ownPodContext(pod *corev1.Pod) *corev1.PodSecurityContext {
	if pod.Spec.SecurityContext == nil {
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{}
	}
	return pod.Spec.SecurityContext
}

// context returns the security context of a container for reading.
func context(c podspec.Container) *corev1.SecurityContext {
	if c.SecurityContext == nil {
		return &corev1.SecurityContext{}
	}
	return c.SecurityContext
}

// ownContext returns the security context of a container for writing.
func ownContext(c podspec.Container) *corev1.SecurityContext {
	if c.SecurityContext == nil {
		c.SecurityContext = &corev1.SecurityContext{}
	}
	return c.SecurityContext
}

// annotate sets an annotation of a pod.
func annotate(pod *corev1.Pod, key, value string) {
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[key] = value
}

// isWindows reports whether a pod declares that it runs on Windows. The API server rejects Linux fields in such a pod.
func isWindows(pod *corev1.Pod) bool {
	return pod.Spec.OS != nil && pod.Spec.OS.Name == corev1.Windows
}
