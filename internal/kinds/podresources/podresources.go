// Package podresources adds up what a pod requests and what it is limited to. The results are those of
// k8s.io/component-helpers/resource, whose work is the number of init containers times the number of resources of sidecars:
// 4,000 of each take 3 s, and a pod may have five times as many.
package podresources

import (
	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Options say what counts for a pod.
type Options struct {
	// Status makes what the kubelet has allocated or set count if it is more than what the containers ask for.
	Status bool
	// PodLevel makes spec.resources of the pod replace the sums over its containers.
	PodLevel bool
}

// Requests returns the requests of a pod with its overhead.
//
// Upstream: PodRequests.
func Requests(pod *corev1.Pod, opts Options) corev1.ResourceList {
	out := opts.highest(pod, []of{
		func(c *corev1.Container, _ *corev1.ContainerStatus) corev1.ResourceList { return c.Resources.Requests },
		func(_ *corev1.Container, s *corev1.ContainerStatus) corev1.ResourceList {
			if s.Resources != nil && s.Resources.Requests != nil {
				return s.Resources.Requests
			}
			return s.AllocatedResources
		},
		func(_ *corev1.Container, s *corev1.ContainerStatus) corev1.ResourceList { return s.AllocatedResources },
	})
	if opts.PodLevel && resourcehelper.IsPodLevelRequestsSet(pod) {
		replace(out, pod.Spec.Resources.Requests)
	}
	add(out, pod.Spec.Overhead)
	return out
}

// Limits returns the limits of a pod. Its overhead is added to those that it has.
//
// Upstream: PodLimits.
func Limits(pod *corev1.Pod, opts Options) corev1.ResourceList {
	out := opts.highest(pod, []of{
		func(c *corev1.Container, _ *corev1.ContainerStatus) corev1.ResourceList { return c.Resources.Limits },
		func(_ *corev1.Container, s *corev1.ContainerStatus) corev1.ResourceList {
			if s.Resources == nil {
				return nil
			}
			return s.Resources.Limits
		},
	})
	if opts.PodLevel && resourcehelper.IsPodLevelResourcesSet(pod) {
		replace(out, pod.Spec.Resources.Limits)
	}
	for name, q := range pod.Spec.Overhead {
		if limit, ok := out[name]; ok && !limit.IsZero() {
			limit.Add(q)
			out[name] = limit
		}
	}
	return out
}

// of returns resources of a container.
type of func(*corev1.Container, *corev1.ContainerStatus) corev1.ResourceList

// highest returns the highest of several totals, of equal ones the first. The first list is that of the spec. The spec also counts for containers without a
// status, and for those whose status has no such resources, but not while a resize is infeasible.
func (o Options) highest(pod *corev1.Pod, lists []of) corev1.ResourceList {
	inSpec := func(c *corev1.Container) corev1.ResourceList { return lists[0](c, nil) }
	if !o.Status {
		return Total(&pod.Spec, inSpec)
	}
	if resourcehelper.IsPodResizeInfeasible(pod) {
		inSpec = func(*corev1.Container) corev1.ResourceList { return nil }
	}
	out := Total(&pod.Spec, inSpec)
	statuses := statusesOf(pod)
	if len(statuses) == 0 {
		return out
	}
	for _, inStatus := range lists[1:] {
		raise(out, Total(&pod.Spec, func(c *corev1.Container) corev1.ResourceList {
			if s := statuses[c.Name]; s != nil {
				if list := inStatus(c, s); list != nil {
					return list
				}
			}
			return inSpec(c)
		}))
	}
	return out
}

// statusesOf returns the status of each container by its name.
func statusesOf(pod *corev1.Pod) map[string]*corev1.ContainerStatus {
	out := make(map[string]*corev1.ContainerStatus, len(pod.Status.ContainerStatuses)+len(pod.Status.InitContainerStatuses))
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for i := range statuses {
			if name := statuses[i].Name; out[name] == nil {
				out[name] = &statuses[i]
			}
		}
	}
	return out
}

// Total returns the most that the containers of a pod use at any time, where of returns what one uses. Containers and sidecars
// run together. An init container runs alone with the sidecars that started before it. The total shares no memory with the
// pod.
func Total(spec *corev1.PodSpec, of func(*corev1.Container) corev1.ResourceList) corev1.ResourceList {
	sum, sidecars, highest := corev1.ResourceList{}, corev1.ResourceList{}, corev1.ResourceList{}
	for i := range spec.Containers {
		add(sum, of(&spec.Containers[i]))
	}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		own, isSidecar := of(c), c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
		if isSidecar {
			add(sum, own)
			add(sidecars, own)
		}
		// What only the sidecars use was compared when the last of them was added.
		for name, q := range own {
			meanwhile := q.DeepCopy() // The sum has the format of its first quantity.
			if others, ok := sidecars[name]; isSidecar {
				meanwhile = others
			} else if ok {
				meanwhile.Add(others)
			}
			raise(highest, corev1.ResourceList{name: meanwhile})
		}
	}
	raise(sum, highest)
	return sum
}

// replace replaces what a pod sets for all of its containers.
func replace(list, podLevel corev1.ResourceList) {
	for name, q := range podLevel {
		if resourcehelper.IsSupportedPodLevelResource(name) {
			list[name] = q.DeepCopy()
		}
	}
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
