package strategies

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/postern-dev/postern/internal/kinds/podspec"
)

// The annotations of a policy with its AppArmor profiles.
const (
	AppArmorDefaultAnnotation = "apparmor.security.beta.kubernetes.io/defaultProfileName"
	AppArmorAllowedAnnotation = "apparmor.security.beta.kubernetes.io/allowedProfileNames"
)

// appArmor is the strategy for AppArmor profiles. A profile is an annotation of the pod for a container, or a field of
// the container or the pod; both are compared by the text of the annotation.
type appArmor struct {
	// preset is the default profile, or "" if there is none.
	preset string
	// allowed is nil if any profile is allowed.
	allowed sets.Set[string]
	// text is the list of allowed profiles for messages.
	text string
}

func newAppArmor(annotations map[string]string) appArmor {
	a := appArmor{preset: annotations[AppArmorDefaultAnnotation], text: annotations[AppArmorAllowedAnnotation]}
	if _, ok := annotations[AppArmorAllowedAnnotation]; ok {
		a.allowed = sets.New(strings.Split(a.text, ",")...)
	}
	return a
}

// setDefault sets the default profile of a container that has none. The API server makes a field of the annotation
// when it stores a new pod. It stores no new annotation with an ephemeral container, so that one gets the field.
func (a appArmor) setDefault(pod *corev1.Pod, c podspec.Container) {
	if a.preset == "" || hasAppArmor(pod, c) {
		return
	}
	if c.Kind == podspec.EphemeralContainers {
		if profile := appArmorField(a.preset); profile != nil {
			ownContext(c).AppArmorProfile = profile
		}
		return
	}
	annotate(pod, appArmorKey(c), a.preset)
}

// AddAppArmorFields sets the fields of the profiles that Default has added to a pod as annotations. The API server does the same
// when it stores a new pod, and warns of an annotation without the field.
func AddAppArmorFields(before, after *corev1.Pod) {
	if isWindows(after) {
		return
	}
	for c := range podspec.EachContainer(&after.Spec) {
		key := appArmorKey(c)
		if name := after.Annotations[key]; name != before.Annotations[key] {
			if profile := appArmorField(name); profile != nil {
				ownContext(c).AppArmorProfile = profile
			}
		}
	}
}

// check checks the profiles of a container, or those of the pod if it has none.
func (a appArmor) check(pod *corev1.Pod, c podspec.Container, ofPod []string) field.ErrorList {
	if a.allowed == nil {
		return nil
	}
	key := appArmorKey(c)
	path, profiles := field.NewPath("pod", "metadata", "annotations").Key(key), named(appArmorName(context(c).AppArmorProfile), pod.Annotations[key])
	if len(profiles) == 0 {
		profiles = ofPod
	}
	if len(profiles) == 0 {
		return field.ErrorList{field.Forbidden(path, "AppArmor profile must be set")}
	}
	for _, p := range profiles {
		if !a.allowed.Has(p) {
			return field.ErrorList{field.Forbidden(path, fmt.Sprintf("%s is not an allowed profile. Allowed values: %q", p, a.text))}
		}
	}
	return nil
}

// appArmorKey returns the annotation with the profile of a container.
func appArmorKey(c podspec.Container) string {
	return corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + c.Name
}

// hasAppArmor reports whether a container has a profile: a field, an annotation, or the field of the pod.
func hasAppArmor(pod *corev1.Pod, c podspec.Container) bool {
	own, _ := appArmorParts(context(c).AppArmorProfile)
	ofPod, _ := appArmorParts(podContext(pod).AppArmorProfile)
	return own != "" || ofPod != "" || pod.Annotations[appArmorKey(c)] != ""
}

// appArmorName returns the annotation for a field, or "" if there is none.
func appArmorName(p *corev1.AppArmorProfile) string {
	prefix, file := appArmorParts(p)
	return prefix + file
}

func appArmorParts(p *corev1.AppArmorProfile) (prefix, file string) {
	switch {
	case p == nil:
	case p.Type == corev1.AppArmorProfileTypeUnconfined:
		return corev1.DeprecatedAppArmorBetaProfileNameUnconfined, ""
	case p.Type == corev1.AppArmorProfileTypeRuntimeDefault:
		return corev1.DeprecatedAppArmorBetaProfileRuntimeDefault, ""
	case p.Type == corev1.AppArmorProfileTypeLocalhost && p.LocalhostProfile != nil:
		return corev1.DeprecatedAppArmorBetaProfileNamePrefix, *p.LocalhostProfile
	}
	return "", ""
}

// appArmorField returns the field for an annotation, or nil if there is none.
func appArmorField(name string) *corev1.AppArmorProfile {
	switch name {
	case corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
	case corev1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
	}
	if profile, ok := strings.CutPrefix(name, corev1.DeprecatedAppArmorBetaProfileNamePrefix); ok && profile != "" {
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: &profile}
	}
	return nil
}
