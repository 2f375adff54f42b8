package defaults

import (
	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"

	"github.com/postern-dev/postern/internal/kinds/podspec"
)

func podRules(r rules) {
	on(r, setPod)
	on(r, setPodSpec)
	on(r, setPodStatus)
	on(r, setContainer)
	on(r, func(c *corev1.EphemeralContainerCommon) { setContainer((*corev1.Container)(c)) })
	on(r, round)
	on(r, func(p *corev1.ContainerPort) { fill(&p.Protocol, corev1.ProtocolTCP) })
	on(r, func(ref *corev1.ObjectFieldSelector) { fill(&ref.APIVersion, "v1") })
	on(r, func(ref *corev1.FileKeySelector) { set(&ref.Optional, false) })
	on(r, func(a *corev1.GRPCAction) { set(&a.Service, "") })
	on(r, func(a *corev1.HTTPGetAction) {
		fill(&a.Path, "/")
		fill(&a.Scheme, corev1.URISchemeHTTP)
	})
	on(r, func(p *corev1.Probe) {
		fill(&p.TimeoutSeconds, 1)
		fill(&p.PeriodSeconds, 10)
		fill(&p.SuccessThreshold, 1)
		fill(&p.FailureThreshold, 3)
	})
}

// setPod sets the defaults that the pod template of a workload does not get.
func setPod(p *corev1.Pod) {
	s := &p.Spec
	if seconds := s.TerminationGracePeriodSeconds; seconds != nil && *seconds < 0 {
		s.TerminationGracePeriodSeconds = new(int64(1))
	}
	set(&s.EnableServiceLinks, corev1.DefaultEnableServiceLinks)
	for c := range podspec.EachContainer(s, podspec.InitContainers, podspec.Containers) {
		inherit(&c.Resources.Requests, c.Resources.Limits)
		for i := range c.Ports {
			if port := &c.Ports[i]; s.HostNetwork {
				fill(&port.HostPort, port.ContainerPort)
			}
		}
	}
}

func setPodSpec(s *corev1.PodSpec) {
	fill(&s.ServiceAccountName, s.DeprecatedServiceAccount)
	s.DeprecatedServiceAccount = s.ServiceAccountName
	fill(&s.DNSPolicy, corev1.DNSClusterFirst)
	fill(&s.RestartPolicy, corev1.RestartPolicyAlways)
	fill(&s.SchedulerName, corev1.DefaultSchedulerName)
	set(&s.SecurityContext, corev1.PodSecurityContext{})
	set(&s.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
}

// setPodStatus makes the first of the addresses the address of the pod, which is the one that counts if both are set.
func setPodStatus(s *corev1.PodStatus) {
	if len(s.PodIPs) > 0 {
		fill(&s.PodIP, s.PodIPs[0].IP)
	}
	if s.PodIP != "" && (len(s.PodIPs) == 0 || s.PodIPs[0].IP != s.PodIP) {
		s.PodIPs = []corev1.PodIP{{IP: s.PodIP}}
	}
}

func setContainer(c *corev1.Container) {
	setPullPolicy(&c.ImagePullPolicy, c.Image)
	fill(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	fill(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
}

// setPullPolicy sets the policy of an image: Always for the tag latest, and for an image with neither a tag nor a digest.
func setPullPolicy(policy *corev1.PullPolicy, image string) {
	if *policy != "" {
		return
	}
	*policy = corev1.PullIfNotPresent
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return // kube-apiserver does the same
	}
	if tagged, ok := reference.TagNameOnly(named).(reference.Tagged); ok && tagged.Tag() == "latest" {
		*policy = corev1.PullAlways
	}
}
