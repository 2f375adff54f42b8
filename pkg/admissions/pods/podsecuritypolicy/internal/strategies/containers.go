package strategies

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/postern-dev/postern/internal/kinds/podspec"
)

func (p *Policy) checkContainer(pod *corev1.Pod, c podspec.Container, in inherited) field.ErrorList {
	e, path := effectiveIn(pod, c), c.Path().Child("securityContext")
	var primary []int64
	if id := e.runAsGroup(); id != nil {
		primary = []int64{*id}
	}
	errs := p.user.check(path, e.runAsNonRoot(), e.runAsUser())
	errs = append(errs, p.runAsGroup.check(path, primary)...)
	if e.own.SELinuxOptions != nil || !in.labelled {
		errs = append(errs, p.selinux.check(path.Child("seLinuxOptions"), e.seLinuxOptions())...)
	}
	errs = append(errs, p.appArmor.check(pod, c, in.appArmor)...)
	errs = append(errs, p.seccomp.checkContainer(pod, c, in.seccomp)...)
	if on := e.own.Privileged; on != nil && *on && !p.spec.Privileged {
		errs = append(errs, field.Invalid(path.Child("privileged"), true, "Privileged containers are not allowed"))
	}
	errs = append(errs, p.checkProcMount(path.Child("procMount"), e.own.ProcMount)...)
	errs = append(errs, p.capabilities.check(path.Child("capabilities"), e.own.Capabilities)...)
	errs = append(errs, p.checkHostPorts(c)...)
	errs = append(errs, p.checkRootFilesystem(path.Child("readOnlyRootFilesystem"), e.own.ReadOnlyRootFilesystem)...)
	if allow := e.own.AllowPrivilegeEscalation; !p.escalation && (allow == nil || *allow) {
		errs = append(errs, field.Invalid(path.Child("allowPrivilegeEscalation"), allow, "Allowing privilege escalation for containers is not allowed"))
	}
	return errs
}

func (p *Policy) checkProcMount(path *field.Path, mount *corev1.ProcMountType) field.ErrorList {
	got, allowed := corev1.DefaultProcMount, p.spec.AllowedProcMountTypes
	if mount != nil {
		got = *mount
	}
	if len(allowed) == 0 {
		allowed = []corev1.ProcMountType{corev1.DefaultProcMount}
	}
	if slices.Contains(allowed, got) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, got, "ProcMountType is not allowed")}
}

func (p *Policy) checkRootFilesystem(path *field.Path, readOnly *bool) field.ErrorList {
	switch {
	case !p.spec.ReadOnlyRootFilesystem:
		return nil
	case readOnly == nil:
		return field.ErrorList{field.Invalid(path, readOnly, "ReadOnlyRootFilesystem may not be nil and must be set to true")}
	case !*readOnly:
		return field.ErrorList{field.Invalid(path, false, "ReadOnlyRootFilesystem must be set to true")}
	}
	return nil
}

func (p *Policy) checkHostPorts(c podspec.Container) field.ErrorList {
	var errs field.ErrorList
	for _, port := range c.Ports {
		if len(errs) == maxViolations {
			break
		}
		if port.HostPort > 0 && !p.allowsHostPort(port.HostPort) {
			errs = append(errs, field.Invalid(c.Path().Child("hostPort"), port.HostPort,
				fmt.Sprintf("Host port %d is not allowed to be used. Allowed ports: [%s]", port.HostPort, p.hostPorts())))
		}
	}
	return errs
}

func (p *Policy) allowsHostPort(port int32) bool {
	for _, r := range p.spec.HostPorts {
		if r.Min <= port && port <= r.Max {
			return true
		}
	}
	return false
}

// hostPorts returns the allowed ranges for messages.
func (p *Policy) hostPorts() string {
	ranges := make([]string, 0, len(p.spec.HostPorts))
	for _, r := range p.spec.HostPorts {
		if r.Min == r.Max {
			ranges = append(ranges, fmt.Sprint(r.Min))
		} else {
			ranges = append(ranges, fmt.Sprintf("%d-%d", r.Min, r.Max))
		}
	}
	return strings.Join(ranges, ",")
}
