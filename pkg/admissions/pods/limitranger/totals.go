package limitranger

import (
	corev1 "k8s.io/api/core/v1"
)

// requestsOf and limitsOf select the list that total sums.
func requestsOf(r *corev1.ResourceRequirements) corev1.ResourceList { return r.Requests }

func limitsOf(r *corev1.ResourceRequirements) corev1.ResourceList { return r.Limits }

// total returns the most that a pod uses at any time. Containers and sidecars run
// together. An init container runs alone with the sidecars that started before it.
// Pod-level cpu and memory replace the sums.
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
			continue
		}
		// What only the sidecars use is in the sum. Copying that for each init container takes seconds if users write
		// thousands of resources.
		meanwhile := corev1.ResourceList{}
		add(meanwhile, of(&c.Resources))
		for name := range meanwhile {
			if q, ok := sidecars[name]; ok {
				add(meanwhile, corev1.ResourceList{name: q})
			}
		}
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

// add adds more to a sum. The sum shares no memory with more.
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

// raise raises every resource of list to at least its quantity in other.
func raise(list, other corev1.ResourceList) {
	for name, q := range other {
		if has, ok := list[name]; !ok || q.Cmp(has) > 0 {
			list[name] = q.DeepCopy()
		}
	}
}
