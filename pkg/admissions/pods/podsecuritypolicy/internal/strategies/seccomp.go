package strategies

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/postern-dev/postern/internal/kinds/podspec"
)

// The annotations of a policy with its seccomp profiles.
const (
	SeccompDefaultAnnotation = "seccomp.security.alpha.kubernetes.io/defaultProfileName"
	SeccompAllowedAnnotation = "seccomp.security.alpha.kubernetes.io/allowedProfileNames"
)

// seccomp is the strategy for seccomp profiles. A profile is an annotation or a field of a pod or a container; both
// are compared by the text of the annotation.
type seccomp struct {
	// preset is the default profile, or "" if there is none.
	preset string
	// allowed is empty if no profile may be set.
	allowed sets.Set[string]
	any     bool
	// text is the list of allowed profiles for messages.
	text string
}

func newSeccomp(annotations map[string]string) seccomp {
	s := seccomp{preset: annotations[SeccompDefaultAnnotation], text: annotations[SeccompAllowedAnnotation]}
	if _, ok := annotations[SeccompAllowedAnnotation]; !ok {
		return s
	}
	s.allowed = sets.New[string]()
	for name := range strings.SplitSeq(s.text, ",") {
		switch name {
		case "*":
			s.any = true
		case corev1.DeprecatedSeccompProfileDockerDefault, corev1.SeccompProfileRuntimeDefault:
			// These are two names of one profile.
			s.allowed.Insert(corev1.DeprecatedSeccompProfileDockerDefault, corev1.SeccompProfileRuntimeDefault)
		default:
			s.allowed.Insert(name)
		}
	}
	return s
}

// SyncSeccomp sets the fields for which a pod has only annotations. The API server did so until Kubernetes 1.26. Newer
// nodes ignore the annotations, so a pod with only annotations runs without a profile.
func SyncSeccomp(pod *corev1.Pod) {
	if isWindows(pod) {
		return
	}
	if profile := seccompField(pod.Annotations[corev1.SeccompPodAnnotationKey]); profile != nil && podContext(pod).SeccompProfile == nil {
		ownPodContext(pod).SeccompProfile = profile
	}
	// Only one container of a name gets the field, so that no annotation is multiplied. The API server rejects such a pod.
	seen := sets.New[string]()
	for c := range podspec.EachContainer(&pod.Spec) {
		profile := seccompField(pod.Annotations[corev1.SeccompContainerAnnotationKeyPrefix+c.Name])
		if profile == nil || seen.Has(c.Name) {
			continue
		}
		seen.Insert(c.Name)
		if context(c).SeccompProfile == nil {
			ownContext(c).SeccompProfile = profile
		}
	}
}

// LacksSeccompAnnotation reports whether a pod has a profile in its own field, and no annotation. kube-apiserver's plugin
// wrote the annotation with the defaults of each policy, so that every policy changed such a pod. It wrote no annotation
// for the fields of containers.
func LacksSeccompAnnotation(pod *corev1.Pod) bool {
	return seccompName(podContext(pod).SeccompProfile) != "" && pod.Annotations[corev1.SeccompPodAnnotationKey] == ""
}

// setDefault sets the default profile of a pod that has none, as an annotation and as a field.
func (s seccomp) setDefault(pod *corev1.Pod) {
	if s.preset == "" || pod.Annotations[corev1.SeccompPodAnnotationKey] != "" || podContext(pod).SeccompProfile != nil {
		return
	}
	annotate(pod, corev1.SeccompPodAnnotationKey, s.preset)
	if profile := seccompField(s.preset); profile != nil && !isWindows(pod) {
		ownPodContext(pod).SeccompProfile = profile
	}
}

// checkContainer checks the profiles of a container, or those of the pod if it has none.
func (s seccomp) checkContainer(pod *corev1.Pod, c podspec.Container, ofPod []string) field.ErrorList {
	key := corev1.SeccompContainerAnnotationKeyPrefix + c.Name
	profiles := named(seccompName(context(c).SeccompProfile), pod.Annotations[key])
	if _, ok := pod.Annotations[key]; !ok && len(profiles) == 0 {
		profiles = ofPod
	}
	return s.check(key, profiles)
}

// ofPod returns the profiles of the pod itself.
func (s seccomp) ofPod(pod *corev1.Pod) []string {
	annotation, own := pod.Annotations[corev1.SeccompPodAnnotationKey], seccompName(podContext(pod).SeccompProfile)
	profiles := named(own, annotation)
	if own == "" && seccompField(annotation) != nil && !isWindows(pod) {
		// Nodes ignore the annotation, so the pod also has to be allowed without a profile.
		profiles = append(profiles, "")
	}
	return profiles
}

// named returns the profiles that have a name, each once.
func named(profiles ...string) []string {
	return slices.Compact(slices.DeleteFunc(profiles, func(p string) bool { return p == "" }))
}

// check checks the profiles of a pod or a container, which may be none.
func (s seccomp) check(key string, profiles []string) field.ErrorList {
	if len(profiles) == 0 {
		profiles = []string{""}
	}
	path := field.NewPath("pod", "metadata", "annotations").Key(key)
	for _, p := range profiles {
		switch {
		case s.any, s.allowed.Has(p), p == "" && len(s.allowed) == 0:
		case len(s.allowed) == 0:
			return field.ErrorList{field.Forbidden(path, "seccomp may not be set")}
		default:
			return field.ErrorList{field.Forbidden(path, fmt.Sprintf("%s is not an allowed seccomp profile. Valid values are %v", p, s.text))}
		}
	}
	return nil
}

// seccompName returns the annotation for a field, or "" if there is none.
func seccompName(p *corev1.SeccompProfile) string {
	switch {
	case p == nil:
	case p.Type == corev1.SeccompProfileTypeUnconfined:
		return corev1.SeccompProfileNameUnconfined
	case p.Type == corev1.SeccompProfileTypeRuntimeDefault:
		return corev1.SeccompProfileRuntimeDefault
	case p.Type == corev1.SeccompProfileTypeLocalhost && p.LocalhostProfile != nil:
		return corev1.SeccompLocalhostProfileNamePrefix + *p.LocalhostProfile
	}
	return ""
}

// seccompField returns the field for an annotation, or nil if there is none.
func seccompField(name string) *corev1.SeccompProfile {
	switch name {
	case corev1.SeccompProfileNameUnconfined:
		return &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
	case corev1.SeccompProfileRuntimeDefault, corev1.DeprecatedSeccompProfileDockerDefault:
		return &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	}
	if file, ok := strings.CutPrefix(name, corev1.SeccompLocalhostProfileNamePrefix); ok && file != "" {
		return &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: &file}
	}
	return nil
}
