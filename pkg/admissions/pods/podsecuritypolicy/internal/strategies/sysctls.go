package strategies

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// safeSysctls returns the sysctls that Kubernetes 1.24 called safe: they affect no other pod of the node.
func safeSysctls() []string {
	return []string{
		"kernel.shm_rmid_forced",
		"net.ipv4.ip_local_port_range",
		"net.ipv4.tcp_syncookies",
		"net.ipv4.ping_group_range",
		"net.ipv4.ip_unprivileged_port_start",
	}
}

func (p *Policy) checkSysctls(sysctls []corev1.Sysctl) field.ErrorList {
	path := field.NewPath("pod", "spec", "securityContext", "sysctls")
	var errs field.ErrorList
	for i, s := range sysctls {
		if len(errs) == maxViolations {
			break
		}
		switch {
		case matchesAny(s.Name, p.spec.ForbiddenSysctls):
			errs = append(errs, field.Forbidden(path.Index(i), fmt.Sprintf("sysctl %q is not allowed", s.Name)))
		case !slices.Contains(safeSysctls(), s.Name) && !matchesAny(s.Name, p.spec.AllowedUnsafeSysctls):
			errs = append(errs, field.Forbidden(path.Index(i), fmt.Sprintf("unsafe sysctl %q is not allowed", s.Name)))
		}
	}
	return errs
}

// matchesAny reports whether a name is one of the patterns, or begins with one that ends in a star.
func matchesAny(name string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		prefix, isPrefix := strings.CutSuffix(pattern, "*")
		return name == pattern || isPrefix && strings.HasPrefix(name, prefix)
	})
}
