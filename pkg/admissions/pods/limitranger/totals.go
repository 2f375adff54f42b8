package limitranger

import (
	corev1 "k8s.io/api/core/v1"
)

// requestsOf and limitsOf are what total adds up.
func requestsOf(r *corev1.ResourceRequirements) corev1.ResourceList { return r.Requests }

func limitsOf(r *corev1.ResourceRequirements) corev1.ResourceList { return r.Limits }

// total returns what a pod needs at once: containers and sidecars run together;
// an init container runs alone but for the sidecars that started before it. What
// the pod says of cpu and memory as a whole replaces the sums.
//
// Upstream: podRequests and podLimits of the plugin. The library's PodRequests
// differs: it also lets the pod replace huge pages.
func (l *limitRanger) total(spec *corev1.PodSpec, of func(*corev1.ResourceRequirements) corev1.ResourceList) corev1.ResourceList {
	sum, sidecars, highest := corev1.ResourceList{}, corev1.ResourceList{}, corev1.ResourceList{}
	for i := range spec.Containers {
		add(sum, of(&spec.Containers[i].Resources))
	}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		if isSidecar(c) {
			add(sum, of(&c.Resources))
			add(sidecars, of(&c.Resources))
			raise(highest, sidecars)
			continue
		}
		meanwhile := corev1.ResourceList{}
		add(meanwhile, of(&c.Resources))
		add(meanwhile, sidecars)
		raise(highest, meanwhile)
	}
	raise(sum, highest)
	if l.podLevel && spec.Resources != nil {
		own := of(spec.Resources)
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if q, ok := own[name]; ok {
				sum[name] = q
			}
		}
	}
	return sum
}

func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// add adds more to a sum, which shares nothing with it.
func add(sum, more corev1.ResourceList) {
	for name, q := range more {
		total, ok := sum[name]
		if !ok {
			sum[name] = q.DeepCopy()
			continue
		}
		total.Add(q)
		sum[name] = total
	}
}

// raise makes every resource of list at least what it is in other.
func raise(list, other corev1.ResourceList) {
	for name, q := range other {
		if has, ok := list[name]; !ok || q.Cmp(has) > 0 {
			list[name] = q.DeepCopy()
		}
	}
}
