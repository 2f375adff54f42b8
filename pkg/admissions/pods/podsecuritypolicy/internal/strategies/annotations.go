package strategies

import (
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Annotations returns the annotations of a policy that CheckAnnotations checks.
func Annotations() []string {
	return []string{AppArmorDefaultAnnotation, AppArmorAllowedAnnotation, SeccompDefaultAnnotation, SeccompAllowedAnnotation}
}

// CheckAnnotations returns the annotations of a policy that are no profiles, as many as a denial names.
//
// Upstream: ValidatePodSecurityPolicySpecificAnnotations.
func CheckAnnotations(annotations map[string]string, at *field.Path) field.ErrorList {
	var errs violations
	for _, key := range Annotations() {
		value := annotations[key]
		if value == "" {
			continue
		}
		profiles, check := []string{value}, seccompFault
		if key == AppArmorDefaultAnnotation || key == AppArmorAllowedAnnotation {
			check = appArmorFault
		}
		if key == AppArmorAllowedAnnotation || key == SeccompAllowedAnnotation {
			profiles = strings.Split(value, ",")
		}
		for _, p := range profiles {
			if key == SeccompAllowedAnnotation && p == "*" {
				continue
			}
			if fault := check(p); fault != "" {
				errs.add(field.Invalid(at.Key(key), value, fault))
			}
			if errs.full() {
				break
			}
		}
	}
	return errs.list
}

func appArmorFault(profile string) string {
	switch profile {
	case "", corev1.DeprecatedAppArmorBetaProfileRuntimeDefault, corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return ""
	}
	if !strings.HasPrefix(profile, corev1.DeprecatedAppArmorBetaProfileNamePrefix) {
		return fmt.Sprintf("invalid AppArmor profile name: %q", profile)
	}
	return ""
}

func seccompFault(profile string) string {
	switch profile {
	case corev1.SeccompProfileRuntimeDefault, corev1.DeprecatedSeccompProfileDockerDefault, corev1.SeccompProfileNameUnconfined:
		return ""
	}
	file, ok := strings.CutPrefix(profile, corev1.SeccompLocalhostProfileNamePrefix)
	switch {
	case !ok:
		return "must be a valid seccomp profile"
	case path.IsAbs(file):
		return "must be a relative path"
	case slices.Contains(strings.Split(file, "/"), ".."):
		return "must not contain '..'"
	}
	return ""
}
