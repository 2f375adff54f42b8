package usage

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
)

// serviceEvaluator measures Services.
type serviceEvaluator struct{ base }

// GroupResource implements quota.Evaluator.
func (serviceEvaluator) GroupResource() schema.GroupResource {
	return schema.GroupResource{Resource: "services"}
}

// Handles implements quota.Evaluator. An update may change the type and the ports.
func (serviceEvaluator) Handles(a admission.Attributes) bool {
	return a.GetSubresource() == "" && (a.GetOperation() == admission.Create || a.GetOperation() == admission.Update)
}

// Matches implements quota.Evaluator.
func (e serviceEvaluator) Matches(q *corev1.ResourceQuota, obj runtime.Object) (bool, error) {
	return generic.Matches(q, obj, e.MatchingResources, generic.MatchesNoScopeFunc)
}

// MatchingResources implements quota.Evaluator.
func (serviceEvaluator) MatchingResources(names []corev1.ResourceName) []corev1.ResourceName {
	return quota.Intersection(names, []corev1.ResourceName{
		objectCount("", "services"), corev1.ResourceServices, corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers,
	})
}

// Usage implements quota.Evaluator. The API server may allocate node ports after the plugins, so the intended ports
// count, not those that the Service has.
func (serviceEvaluator) Usage(obj runtime.Object) (corev1.ResourceList, error) {
	svc, ok := obj.(*corev1.Service)
	if !ok {
		return nil, unexpected("Service", obj)
	}
	var nodePorts, loadBalancers int64
	if t := svc.Spec.Type; t == corev1.ServiceTypeNodePort || t == corev1.ServiceTypeLoadBalancer {
		nodePorts = int64(len(svc.Spec.Ports))
	}
	if svc.Spec.Type == corev1.ServiceTypeLoadBalancer {
		loadBalancers = 1
		if allocate := svc.Spec.AllocateLoadBalancerNodePorts; allocate != nil && !*allocate {
			nodePorts = explicitNodePorts(svc)
		}
	}
	return corev1.ResourceList{
		objectCount("", "services"):          number(1),
		corev1.ResourceServices:              number(1),
		corev1.ResourceServicesNodePorts:     number(nodePorts),
		corev1.ResourceServicesLoadBalancers: number(loadBalancers),
	}, nil
}

func explicitNodePorts(svc *corev1.Service) int64 {
	var n int64
	for i := range svc.Spec.Ports {
		if svc.Spec.Ports[i].NodePort != 0 {
			n++
		}
	}
	return n
}
