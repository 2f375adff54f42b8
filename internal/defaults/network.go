package defaults

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func networkRules(r rules) {
	on(r, setService)
	on(r, func(p *corev1.ServicePort) {
		fill(&p.Protocol, corev1.ProtocolTCP)
		if p.TargetPort == intstr.FromInt32(0) || p.TargetPort == intstr.FromString("") {
			p.TargetPort = intstr.FromInt32(p.Port)
		}
	})
	on(r, func(p *corev1.EndpointPort) { fill(&p.Protocol, corev1.ProtocolTCP) })
	on(r, func(p *discoveryv1.EndpointPort) {
		set(&p.Name, "")
		set(&p.Protocol, corev1.ProtocolTCP)
	})
	on(r, func(p *networkingv1.NetworkPolicyPort) { set(&p.Protocol, corev1.ProtocolTCP) })
	on(r, func(s *networkingv1.NetworkPolicySpec) {
		if len(s.PolicyTypes) == 0 {
			s.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
			if len(s.Egress) > 0 {
				s.PolicyTypes = append(s.PolicyTypes, networkingv1.PolicyTypeEgress)
			}
		}
	})
	on(r, func(p *networkingv1.IngressClassParametersReference) {
		set(&p.Scope, networkingv1.IngressClassParametersReferenceScopeCluster)
	})
}

func setService(o *corev1.Service) {
	s := &o.Spec
	fill(&s.SessionAffinity, corev1.ServiceAffinityNone)
	switch s.SessionAffinity {
	case corev1.ServiceAffinityNone:
		s.SessionAffinityConfig = nil
	case corev1.ServiceAffinityClientIP:
		set(&s.SessionAffinityConfig, corev1.SessionAffinityConfig{})
		set(&s.SessionAffinityConfig.ClientIP, corev1.ClientIPConfig{})
		set(&s.SessionAffinityConfig.ClientIP.TimeoutSeconds, corev1.DefaultClientIPServiceAffinitySeconds)
	}
	fill(&s.Type, corev1.ServiceTypeClusterIP)
	balanced, clusterIP := s.Type == corev1.ServiceTypeLoadBalancer, s.Type == corev1.ServiceTypeClusterIP
	outside := balanced || s.Type == corev1.ServiceTypeNodePort
	if outside || clusterIP {
		set(&s.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster)
	}
	if outside || clusterIP && len(s.ExternalIPs) > 0 {
		fill(&s.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	}
	if !balanced {
		return
	}
	set(&s.AllocateLoadBalancerNodePorts, true)
	for i := range o.Status.LoadBalancer.Ingress {
		if in := &o.Status.LoadBalancer.Ingress[i]; in.IP != "" {
			set(&in.IPMode, corev1.LoadBalancerIPModeVIP)
		}
	}
}
