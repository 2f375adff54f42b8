// Package podusage computes the usage of a pod under the names of a ResourceQuota.
//
// Upstream: pkg/quota/v1/evaluator/core/pods.go.
package podusage

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/component-base/featuregate"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/clock"

	"github.com/postern-dev/postern/internal/kinds/podresources"
	"github.com/postern-dev/postern/internal/kinds/podspec"
	"github.com/postern-dev/postern/internal/quantities"
)

// Of returns the usage of a pod. A pod that has ended counts only as a stored object.
func Of(pod *corev1.Pod, gates featuregate.FeatureGate, c clock.PassiveClock) corev1.ResourceList {
	number := corev1.ResourceList{count(): *resource.NewQuantity(1, resource.DecimalSI)}
	if Ended(pod, c) {
		return number
	}
	pod = capped(pod)
	opts := podresources.Options{Status: true, PodLevel: gates.Enabled(podspec.PodLevelResources)}
	return quota.Add(number, Compute(podresources.Requests(pod, opts), podresources.Limits(pod, opts)))
}

// Ended reports whether the pod is terminal, or is terminating and should be gone by now. Such a pod, for example on a
// lost node, must not count for its user.
func Ended(pod *corev1.Pod, c clock.PassiveClock) bool {
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return true
	}
	if pod.DeletionTimestamp == nil || pod.DeletionGracePeriodSeconds == nil {
		return false
	}
	grace := time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
	return c.Now().After(pod.DeletionTimestamp.Add(grace))
}

// capped returns the pod with bounded quantities. API servers accept exponents that take hours to compute with.
func capped(pod *corev1.Pod) *corev1.Pod {
	isFar := false
	eachList(pod, func(list corev1.ResourceList) {
		for _, q := range list {
			isFar = isFar || quantities.IsStoredFar(q)
		}
	})
	if !isFar {
		return pod
	}
	pod = pod.DeepCopy()
	eachList(pod, quantities.Cap)
	return pod
}

// eachList calls f with each list of resources that the usage of a pod is computed from.
func eachList(pod *corev1.Pod, f func(corev1.ResourceList)) {
	requirements := func(r *corev1.ResourceRequirements) {
		if r != nil {
			f(r.Requests)
			f(r.Limits)
		}
	}
	for c := range podspec.EachContainer(&pod.Spec, podspec.InitContainers, podspec.Containers) {
		requirements(&c.Resources)
	}
	f(pod.Spec.Overhead)
	requirements(pod.Spec.Resources)
	f(pod.Status.AllocatedResources)
	requirements(pod.Status.Resources)
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			f(statuses[i].AllocatedResources)
			requirements(statuses[i].Resources)
		}
	}
}

// Compute returns the usage of one pod with the given requests and limits, under each name of a ResourceQuota.
func Compute(requests, limits corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(1, resource.DecimalSI)}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		if request, ok := requests[name]; ok {
			out[name], out[corev1.DefaultResourceRequestsPrefix+name] = request, request
		}
		if limit, ok := limits[name]; ok {
			out["limits."+name] = limit
		}
	}
	for name, request := range requests {
		if strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			out[name], out[corev1.DefaultResourceRequestsPrefix+name] = request, request
		}
		if podspec.IsExtendedResource(name) || strings.HasPrefix(string(name), resourcev1.ResourceDeviceClassPrefix) {
			out[corev1.DefaultResourceRequestsPrefix+name] = request
		}
	}
	return out
}

// count returns the name of a ResourceQuota for the number of stored pods.
func count() corev1.ResourceName {
	return generic.ObjectCountQuotaResourceNameFor(schema.GroupResource{Resource: "pods"})
}

// compute returns the resources that every container must set if a quota limits them.
//
// Upstream: the validation of quotas is kept for compatibility, and no other resource is added to the list.
func compute() sets.Set[corev1.ResourceName] {
	return sets.New(corev1.ResourceCPU, corev1.ResourceRequestsCPU, corev1.ResourceLimitsCPU,
		corev1.ResourceMemory, corev1.ResourceRequestsMemory, corev1.ResourceLimitsMemory)
}

// Check returns an error that lists the containers that do not set a required resource.
func Check(pod *corev1.Pod, required []corev1.ResourceName, gates featuregate.FeatureGate) error {
	must := sets.New(required...).Intersection(compute())
	if len(must) == 0 || gates.Enabled(podspec.PodLevelResources) && resourcehelper.IsPodLevelResourcesSet(pod) {
		return nil
	}
	missing := map[corev1.ResourceName]sets.Set[string]{}
	for c := range podspec.EachContainer(&pod.Spec, podspec.InitContainers, podspec.Containers) {
		set := Compute(c.Resources.Requests, c.Resources.Limits)
		for name := range must {
			if _, ok := set[name]; ok {
				continue
			}
			if missing[name] == nil {
				missing[name] = sets.New[string]()
			}
			missing[name].Insert(c.Name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	var parts []string
	for _, name := range sets.List(sets.KeySet(missing)) {
		parts = append(parts, fmt.Sprintf("%s for: %s", name, strings.Join(sets.List(missing[name]), ",")))
	}
	return fmt.Errorf("must specify %s", strings.Join(parts, "; "))
}
