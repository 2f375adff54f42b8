// Package strategies holds a pod against one PodSecurityPolicy: it sets the defaults of the policy in the pod, and
// finds the violations. It sees neither requests nor users.
package strategies

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/postern-dev/postern/internal/kinds/podspec"
	policyv1 "github.com/postern-dev/postern/pkg/apis/policy/v1"
)

// Policy is a policy at work.
//
// Upstream: pkg/security/podsecuritypolicy in Kubernetes 1.24.
type Policy struct {
	name string
	spec *policyv1.PodSecurityPolicySpec

	user                                    user
	runAsGroup, fsGroup, supplementalGroups groups
	selinux                                 selinux
	capabilities                            capabilities
	seccomp                                 seccomp
	appArmor                                appArmor
	// escalation is allowPrivilegeEscalation with its default.
	escalation bool
}

// New returns an error for a policy that no pod can satisfy, such as one without a known rule for users. The Policy
// reads p, and does not modify it.
func New(p *policyv1.PodSecurityPolicy) (*Policy, error) {
	s := &p.Spec
	out := &Policy{
		name: p.Name, spec: s,
		capabilities: newCapabilities(s),
		seccomp:      newSeccomp(p.Annotations),
		appArmor:     newAppArmor(p.Annotations),
		escalation:   s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation,
	}
	primary := policyv1.RunAsGroupStrategyOptions{Rule: policyv1.RunAsAny}
	if s.RunAsGroup != nil {
		primary = *s.RunAsGroup
	}
	var errs [5]error
	out.user, errs[0] = newUser(s.RunAsUser)
	out.runAsGroup, errs[1] = newGroups("RunAsGroup", primary.Rule, primary.Ranges)
	out.selinux, errs[2] = newSELinux(s.SELinux)
	out.fsGroup, errs[3] = newGroups("FSGroup", s.FSGroup.Rule, s.FSGroup.Ranges)
	out.supplementalGroups, errs[4] = newGroups("SupplementalGroups", s.SupplementalGroups.Rule, s.SupplementalGroups.Ranges)
	return out, errors.Join(errs[:]...)
}

// Name returns the name of the policy.
func (p *Policy) Name() string { return p.name }

// Default sets the defaults of the policy in a pod and in all of its containers.
func (p *Policy) Default(pod *corev1.Pod) {
	p.defaultPod(pod)
	for c := range podspec.EachContainer(&pod.Spec) {
		p.DefaultContainer(pod, c)
	}
}

func (p *Policy) defaultPod(pod *corev1.Pod) {
	sc := podContext(pod)
	if id := p.supplementalGroups.first(); id != nil && sc.SupplementalGroups == nil {
		ownPodContext(pod).SupplementalGroups = []int64{*id}
	}
	if id := p.fsGroup.first(); id != nil && sc.FSGroup == nil {
		ownPodContext(pod).FSGroup = id
	}
	if p.selinux.want != nil && sc.SELinuxOptions == nil {
		ownPodContext(pod).SELinuxOptions = p.selinux.want.DeepCopy()
	}
	p.seccomp.setDefault(pod)
	if class := p.spec.RuntimeClass; class != nil && class.DefaultRuntimeClassName != nil && pod.Spec.RuntimeClassName == nil {
		pod.Spec.RuntimeClassName = new(*class.DefaultRuntimeClassName)
	}
}

// DefaultContainer sets the defaults of the policy in one container of a pod.
func (p *Policy) DefaultContainer(pod *corev1.Pod, c podspec.Container) {
	e := effectiveIn(pod, c)
	if id := p.user.first(); id != nil && e.runAsUser() == nil {
		ownContext(c).RunAsUser = id
	}
	if id := p.runAsGroup.first(); id != nil && e.runAsGroup() == nil {
		ownContext(c).RunAsGroup = id
	}
	if p.selinux.want != nil && e.seLinuxOptions() == nil {
		ownContext(c).SELinuxOptions = p.selinux.want.DeepCopy()
	}
	p.appArmor.setDefault(pod, c)
	// The kubelet checks runAsNonRoot against the user of the image.
	if e = effectiveIn(pod, c); p.user.rule == policyv1.MustRunAsNonRoot && e.runAsNonRoot() == nil && e.runAsUser() == nil {
		ownContext(c).RunAsNonRoot = new(true)
	}
	p.capabilities.setDefault(c)
	if p.spec.ReadOnlyRootFilesystem && context(c).ReadOnlyRootFilesystem == nil {
		ownContext(c).ReadOnlyRootFilesystem = new(true)
	}
	if allow := p.spec.DefaultAllowPrivilegeEscalation; allow != nil && context(c).AllowPrivilegeEscalation == nil {
		ownContext(c).AllowPrivilegeEscalation = new(*allow)
	}
	if !p.escalation && context(c).AllowPrivilegeEscalation == nil {
		ownContext(c).AllowPrivilegeEscalation = new(false)
	}
}

// Check returns the violations of the policy by a pod that a denial names, in kube-apiserver's order and words.
func (p *Policy) Check(pod *corev1.Pod) field.ErrorList {
	sc, path := podContext(pod), field.NewPath("spec", "securityContext")
	var fsGroups []int64
	if sc.FSGroup != nil {
		fsGroups = []int64{*sc.FSGroup}
	}
	labels := p.selinux.check(path.Child("seLinuxOptions"), sc.SELinuxOptions)
	in := inherited{p.seccomp.ofPod(pod), named(appArmorName(sc.AppArmorProfile)), len(labels) == 0}
	var v violations
	v.add(p.fsGroup.check(path.Child("fsGroup"), fsGroups)...)
	v.add(p.supplementalGroups.check(path.Child("supplementalGroups"), sc.SupplementalGroups)...)
	v.add(p.seccomp.check(corev1.SeccompPodAnnotationKey, in.seccomp)...)
	v.add(labels...)
	for _, host := range []struct {
		field, name   string
		used, allowed bool
	}{
		{"hostNetwork", "network", pod.Spec.HostNetwork, p.spec.HostNetwork},
		{"hostPID", "PID", pod.Spec.HostPID, p.spec.HostPID},
		{"hostIPC", "IPC", pod.Spec.HostIPC, p.spec.HostIPC},
	} {
		if host.used && !host.allowed {
			v.add(field.Invalid(path.Child(host.field), true, "Host "+host.name+" is not allowed to be used"))
		}
	}
	v.add(p.checkSysctls(sc.Sysctls)...)
	v.add(p.checkVolumes(&pod.Spec)...)
	v.add(p.checkRuntimeClass(pod.Spec.RuntimeClassName)...)
	for c := range podspec.EachContainer(&pod.Spec) {
		if v.full() {
			break
		}
		v.add(p.checkContainer(pod, c, in)...)
	}
	return v.list
}

func (p *Policy) checkRuntimeClass(name *string) field.ErrorList {
	if p.spec.RuntimeClass == nil || name == nil {
		return nil
	}
	for _, allowed := range p.spec.RuntimeClass.AllowedRuntimeClassNames {
		if allowed == policyv1.AllowAll || allowed == *name {
			return nil
		}
	}
	return field.ErrorList{field.Invalid(field.NewPath("spec", "runtimeClassName"), *name, "")}
}
