package v1

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

// DeepCopy returns a copy that shares nothing with p.
func (p *PodSecurityPolicy) DeepCopy() *PodSecurityPolicy {
	if p == nil {
		return nil
	}
	return &PodSecurityPolicy{TypeMeta: p.TypeMeta, ObjectMeta: *p.ObjectMeta.DeepCopy(), Spec: p.Spec.deepCopy()}
}

// DeepCopyObject implements runtime.Object.
func (p *PodSecurityPolicy) DeepCopyObject() runtime.Object { return p.DeepCopy() }

// DeepCopy returns a copy that shares nothing with l.
func (l *PodSecurityPolicyList) DeepCopy() *PodSecurityPolicyList {
	if l == nil {
		return nil
	}
	out := &PodSecurityPolicyList{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	if l.Items != nil {
		out.Items = make([]PodSecurityPolicy, len(l.Items))
		for i := range l.Items {
			out.Items[i] = *l.Items[i].DeepCopy()
		}
	}
	return out
}

// DeepCopyObject implements runtime.Object.
func (l *PodSecurityPolicyList) DeepCopyObject() runtime.Object { return l.DeepCopy() }

func (s *PodSecurityPolicySpec) deepCopy() PodSecurityPolicySpec {
	out := *s
	out.DefaultAddCapabilities = slices.Clone(s.DefaultAddCapabilities)
	out.RequiredDropCapabilities = slices.Clone(s.RequiredDropCapabilities)
	out.AllowedCapabilities = slices.Clone(s.AllowedCapabilities)
	out.Volumes = slices.Clone(s.Volumes)
	out.HostPorts = slices.Clone(s.HostPorts)
	out.SELinux.SELinuxOptions = clone(s.SELinux.SELinuxOptions)
	out.RunAsUser.Ranges = slices.Clone(s.RunAsUser.Ranges)
	if out.RunAsGroup = clone(s.RunAsGroup); out.RunAsGroup != nil {
		out.RunAsGroup.Ranges = slices.Clone(s.RunAsGroup.Ranges)
	}
	out.SupplementalGroups.Ranges = slices.Clone(s.SupplementalGroups.Ranges)
	out.FSGroup.Ranges = slices.Clone(s.FSGroup.Ranges)
	out.DefaultAllowPrivilegeEscalation = clone(s.DefaultAllowPrivilegeEscalation)
	out.AllowPrivilegeEscalation = clone(s.AllowPrivilegeEscalation)
	out.AllowedHostPaths = slices.Clone(s.AllowedHostPaths)
	out.AllowedFlexVolumes = slices.Clone(s.AllowedFlexVolumes)
	out.AllowedCSIDrivers = slices.Clone(s.AllowedCSIDrivers)
	out.AllowedUnsafeSysctls = slices.Clone(s.AllowedUnsafeSysctls)
	out.ForbiddenSysctls = slices.Clone(s.ForbiddenSysctls)
	out.AllowedProcMountTypes = slices.Clone(s.AllowedProcMountTypes)
	if out.RuntimeClass = clone(s.RuntimeClass); out.RuntimeClass != nil {
		out.RuntimeClass.AllowedRuntimeClassNames = slices.Clone(s.RuntimeClass.AllowedRuntimeClassNames)
		out.RuntimeClass.DefaultRuntimeClassName = clone(s.RuntimeClass.DefaultRuntimeClassName)
	}
	return out
}

// clone copies a value without pointers in it.
func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	out := *p
	return &out
}
