package podspec

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-base/featuregate"
)

const (
	// PodLevelResources is the gate for spec.resources of a pod.
	PodLevelResources   featuregate.Feature = "PodLevelResources"
	podLevelQOSClassFix featuregate.Feature = "PodLevelResourcesFixKubeletQOSClass"
)

// QOSFeatures are the gates that QOSClass reads, with their defaults.
func QOSFeatures() map[featuregate.Feature]featuregate.FeatureSpec {
	return map[featuregate.Feature]featuregate.FeatureSpec{
		PodLevelResources:   {Default: true, PreRelease: featuregate.Beta},
		podLevelQOSClassFix: {Default: true, PreRelease: featuregate.Beta},
	}
}

// QOSClass returns the quality-of-service class in the status of a pod. A new pod
// has no status, so QOSClass computes its class from its resources.
//
// Upstream: pkg/apis/core/helper/qos.
func QOSClass(pod *corev1.Pod, gates featuregate.FeatureGate) corev1.PodQOSClass {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass
	}
	if own := pod.Spec.Resources; own != nil && gates.Enabled(PodLevelResources) {
		if !gates.Enabled(podLevelQOSClassFix) || haveComputeResources(own) {
			return qosOf(own)
		}
	}
	var classes []corev1.PodQOSClass
	for c := range EachContainer(&pod.Spec, InitContainers, Containers) {
		classes = append(classes, qosOf(&c.Resources))
	}
	return commonQOS(classes...)
}

// haveComputeResources reports whether the list has a resource that a pod can have
// at the pod level.
func haveComputeResources(r *corev1.ResourceRequirements) bool {
	for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
		for name := range list {
			if name == corev1.ResourceCPU || name == corev1.ResourceMemory || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
				return true
			}
		}
	}
	return false
}

func qosOf(r *corev1.ResourceRequirements) corev1.PodQOSClass {
	var classes []corev1.PodQOSClass
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		request, limit := r.Requests[name], r.Limits[name]
		switch {
		case !request.Equal(limit):
			return corev1.PodQOSBurstable
		case request.IsZero():
			classes = append(classes, corev1.PodQOSBestEffort)
		default:
			classes = append(classes, corev1.PodQOSGuaranteed)
		}
	}
	return commonQOS(classes...)
}

// commonQOS returns the class that all parts have in common, Burstable if they
// differ, and BestEffort if there are no parts.
func commonQOS(parts ...corev1.PodQOSClass) corev1.PodQOSClass {
	if len(parts) == 0 {
		return corev1.PodQOSBestEffort
	}
	for _, class := range parts {
		if class != parts[0] {
			return corev1.PodQOSBurstable
		}
	}
	return parts[0]
}
