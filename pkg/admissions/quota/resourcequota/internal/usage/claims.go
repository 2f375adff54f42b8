package usage

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/quota/v1/generic"
)

// claimEvaluator measures ResourceClaims of every version that the API server may send.
type claimEvaluator struct {
	base
	devices Devices
}

// GroupResource implements quota.Evaluator.
func (claimEvaluator) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceclaims"}
}

// Handles implements quota.Evaluator.
func (claimEvaluator) Handles(a admission.Attributes) bool {
	return a.GetSubresource() == "" && (a.GetOperation() == admission.Create || a.GetOperation() == admission.Update)
}

// Matches implements quota.Evaluator.
func (e claimEvaluator) Matches(q *corev1.ResourceQuota, obj runtime.Object) (bool, error) {
	return generic.Matches(q, obj, e.MatchingResources, generic.MatchesNoScopeFunc)
}

// MatchingResources implements quota.Evaluator.
func (e claimEvaluator) MatchingResources(names []corev1.ResourceName) []corev1.ResourceName {
	var out []corev1.ResourceName
	for _, name := range names {
		if name == objectCount(resourcev1.GroupName, "resourceclaims") || strings.HasSuffix(string(name), corev1.ResourceClaimsPerClass) ||
			isRequestOfExtended(name) && e.devices.provide(strings.TrimPrefix(string(name), corev1.DefaultResourceRequestsPrefix)) {
			out = append(out, name)
		}
	}
	return out
}

// Usage implements quota.Evaluator. Devices count for their class, and for the extended resource of the class as far
// as the pod of the claim does not pay for it.
func (e claimEvaluator) Usage(obj runtime.Object) (corev1.ResourceList, error) {
	requests, err := requestsOf(obj)
	if err != nil {
		return nil, err
	}
	out := corev1.ResourceList{objectCount(resourcev1.GroupName, "resourceclaims"): number(1)}
	devices := map[string]int64{}
	for _, request := range requests {
		for class, n := range request.worstCase() {
			devices[class] += n
		}
	}
	extended := corev1.ResourceList{}
	for class, n := range devices {
		out[corev1.ResourceName(class+corev1.ResourceClaimsPerClass)] = number(n)
		if class == "" {
			continue
		}
		extended[corev1.ResourceName(corev1.ResourceImplicitExtendedClaimsPerClass+class)] = number(n)
		if name := e.devices.ExtendedResources[class]; name != "" {
			extended[corev1.ResourceName(corev1.DefaultResourceRequestsPrefix+name)] = number(n)
		}
	}
	paid := e.devices.paidFor(obj)
	for name, quantity := range extended {
		quantity.Sub(paid[name])
		if quantity.Sign() > 0 {
			out[name] = quantity
		}
	}
	return out, nil
}

// request is one request of a claim: the alternatives, of which the scheduler chooses one.
type request []alternative

type alternative struct {
	Class string                          `json:"deviceClassName"`
	Mode  resourcev1.DeviceAllocationMode `json:"allocationMode"`
	Count int64                           `json:"count"`
}

// worstCase returns the most devices of each class that the request can get. A mode that this build does not know
// counts nothing, as in kube-apiserver.
func (r request) worstCase() map[string]int64 {
	out := map[string]int64{}
	for _, a := range r {
		n := int64(0)
		switch a.Mode {
		case resourcev1.DeviceAllocationModeExactCount:
			n = a.Count
		case resourcev1.DeviceAllocationModeAll:
			n = resourcev1.AllocationResultsMaxSize
		}
		if len(r) == 1 || n > 0 {
			out[a.Class] = max(out[a.Class], n)
		}
	}
	return out
}

// requestsOf returns the requests of a claim of any version. The versions have the same fields in JSON, except that
// v1beta1 has those of exactly in the request itself.
func requestsOf(obj runtime.Object) ([]request, error) {
	var requests any
	switch claim := obj.(type) {
	case *resourcev1.ResourceClaim:
		requests = claim.Spec.Devices.Requests
	case *resourcev1beta2.ResourceClaim:
		requests = claim.Spec.Devices.Requests
	case *resourcev1beta1.ResourceClaim:
		requests = claim.Spec.Devices.Requests
	case *unstructured.Unstructured:
		// v1alpha3 has the fields of v1beta1.
		requests, _, _ = unstructured.NestedFieldNoCopy(claim.Object, "spec", "devices", "requests")
	default:
		return nil, unexpected("ResourceClaim", obj)
	}
	data, err := json.Marshal(requests)
	if err != nil {
		return nil, fmt.Errorf("encoding the requests of a claim: %w", err)
	}
	var decoded []struct {
		alternative

		Exactly        *alternative `json:"exactly"`
		FirstAvailable request      `json:"firstAvailable"`
	}
	if err := json.Unmarshal(data, &decoded); err != nil {
		return nil, fmt.Errorf("decoding the requests of a claim: %w", err)
	}
	out := make([]request, 0, len(decoded))
	for _, r := range decoded {
		switch {
		case len(r.FirstAvailable) > 0:
			out = append(out, r.FirstAvailable)
		case r.Exactly != nil:
			out = append(out, request{*r.Exactly})
		case r.Class != "":
			out = append(out, request{r.alternative})
		}
	}
	return out, nil
}
