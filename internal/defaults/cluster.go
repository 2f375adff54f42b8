package defaults

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func clusterRules(r rules) {
	on(r, setSecret)
	on(r, setNamespace)
	on(r, func(s *corev1.NodeSpec) {
		if len(s.PodCIDRs) > 0 {
			fill(&s.PodCIDR, s.PodCIDRs[0])
		}
		if s.PodCIDR != "" && (len(s.PodCIDRs) == 0 || s.PodCIDRs[0] != s.PodCIDR) {
			s.PodCIDRs = []string{s.PodCIDR}
		}
	})
	on(r, func(s *corev1.NodeStatus) {
		if s.Allocatable == nil {
			inherit(&s.Allocatable, s.Capacity)
		}
	})
	on(r, func(l *corev1.LimitRangeItem) {
		if l.Type == corev1.LimitTypeContainer {
			inherit(&l.Default, l.Max)
			inherit(&l.DefaultRequest, l.Default)
			inherit(&l.DefaultRequest, l.Min)
		}
	})
	on(r, func(c *schedulingv1.PriorityClass) { set(&c.PreemptionPolicy, corev1.PreemptLowerPriority) })

	on(r, func(d *resourcev1.ExactDeviceRequest) { setCount(&d.AllocationMode, &d.Count) })
	on(r, func(d *resourcev1.DeviceSubRequest) { setCount(&d.AllocationMode, &d.Count) })
	on(r, func(t *resourcev1.DeviceToleration) { fill(&t.Operator, resourcev1.DeviceTolerationOpEqual) })
	on(r, func(t *resourcev1.DeviceTaint) {
		set(&t.TimeAdded, metav1.Time{Time: time.Now().Truncate(time.Second)})
	})
}

func setSecret(s *corev1.Secret) {
	fill(&s.Type, corev1.SecretTypeOpaque)
	for key, value := range s.StringData {
		put(&s.Data, key, []byte(value))
	}
	s.StringData = nil
}

func setNamespace(n *corev1.Namespace) {
	// With generateName, the API server sets the label later, when it has made the name.
	if n.Name != "" {
		put(&n.Labels, corev1.LabelMetadataName, n.Name)
	}
	fill(&n.Status.Phase, corev1.NamespaceActive)
}

func setCount(mode *resourcev1.DeviceAllocationMode, count *int64) {
	fill(mode, resourcev1.DeviceAllocationModeExactCount)
	if *mode == resourcev1.DeviceAllocationModeExactCount {
		fill(count, 1)
	}
}
