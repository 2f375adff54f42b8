package limitranger

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/postern-dev/postern/internal/kinds/podresources"
)

// requestsOf and limitsOf select the list that total sums.
func requestsOf(r *corev1.ResourceRequirements) corev1.ResourceList { return r.Requests }

func limitsOf(r *corev1.ResourceRequirements) corev1.ResourceList { return r.Limits }

// total returns the most that a pod uses at any time. Pod-level cpu and memory replace the sums.
//
// Upstream: podRequests and podLimits of the plugin. The library's PodRequests
// differs: it also lets the pod replace huge pages.
func (l *limitRanger) total(spec *corev1.PodSpec, of func(*corev1.ResourceRequirements) corev1.ResourceList) corev1.ResourceList {
	sum := podresources.Total(spec, func(c *corev1.Container) corev1.ResourceList { return of(&c.Resources) })
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
