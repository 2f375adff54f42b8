package limitranger

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/postern-dev/postern/internal/kinds/podspec"
)

// checkPod returns the violations of one LimitRange item by a pod.
func (l *limitRanger) checkPod(item corev1.LimitRangeItem, pod *corev1.Pod) []error {
	var errs []error
	switch item.Type {
	case corev1.LimitTypeContainer:
		// Containers come before init containers, unlike in EachContainer, so that
		// errors have kube-apiserver's order.
		for _, kind := range []podspec.ContainerKind{podspec.Containers, podspec.InitContainers} {
			for c := range podspec.EachContainer(&pod.Spec, kind) {
				errs = append(errs, usage{item.Type, c.Resources.Requests, c.Resources.Limits}.check(item)...)
			}
		}
	case corev1.LimitTypePod:
		errs = usage{item.Type, l.total(&pod.Spec, requestsOf), l.total(&pod.Spec, limitsOf)}.check(item)
	case corev1.LimitTypePersistentVolumeClaim:
	}
	return errs
}

// checkClaim returns the violations of one LimitRange item by a claim. Only the
// requests are checked, because nothing uses the limits of a claim. A request that is equal to that in kept is not
// checked.
func checkClaim(item corev1.LimitRangeItem, claim *corev1.PersistentVolumeClaim, kept corev1.ResourceList) []error {
	if item.Type != corev1.LimitTypePersistentVolumeClaim {
		return nil
	}
	u := usage{kind: item.Type, requests: claim.Spec.Resources.Requests}
	return append(each(item.Min, u.unlessIn(kept, u.atLeast)), each(item.Max, u.unlessIn(kept, u.requestAtMost))...)
}

// usage holds the requests and limits of a container, a pod or a claim.
type usage struct {
	kind             corev1.LimitType
	requests, limits corev1.ResourceList
}

func (u usage) check(item corev1.LimitRangeItem) []error {
	return slices.Concat(each(item.Min, u.atLeast), each(item.Max, u.atMost), each(item.MaxLimitRequestRatio, u.ratioAtMost))
}

// constraint checks one resource against its bound.
type constraint func(name corev1.ResourceName, bound resource.Quantity) error

// each checks all resources that have a bound, in the order of their names.
func each(bounds corev1.ResourceList, check constraint) []error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(bounds)) {
		if err := check(name, bounds[name]); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// unlessIn returns a constraint that accepts each request that is equal to that in kept. Equal
// quantities may have different units.
func (u usage) unlessIn(kept corev1.ResourceList, check constraint) constraint {
	return func(name corev1.ResourceName, bound resource.Quantity) error {
		request, requested := u.requests[name]
		if stored, ok := kept[name]; ok && requested && request.Cmp(stored) == 0 {
			return nil
		}
		return check(name, bound)
	}
}

func (u usage) atLeast(name corev1.ResourceName, bound resource.Quantity) error {
	request, requested := u.requests[name]
	limit, limited := u.limits[name]
	atLeast, wanted, capped := amounts(bound, request, limit)
	text := fmt.Sprintf("minimum %s usage per %s is %s", name, u.kind, bound.String())
	switch {
	case !requested:
		return fmt.Errorf("%s.  No request is specified", text)
	case wanted < atLeast:
		return fmt.Errorf("%s, but request is %s", text, request.String())
	case limited && capped < atLeast:
		return fmt.Errorf("%s, but limit is %s", text, limit.String())
	}
	return nil
}

func (u usage) atMost(name corev1.ResourceName, bound resource.Quantity) error {
	request, requested := u.requests[name]
	limit, limited := u.limits[name]
	atMost, wanted, capped := amounts(bound, request, limit)
	text := fmt.Sprintf("maximum %s usage per %s is %s", name, u.kind, bound.String())
	switch {
	case !limited:
		return fmt.Errorf("%s.  No limit is specified", text)
	case capped > atMost:
		return fmt.Errorf("%s, but limit is %s", text, limit.String())
	case requested && wanted > atMost:
		return fmt.Errorf("%s, but request is %s", text, request.String())
	}
	return nil
}

// requestAtMost is atMost for objects without limits.
func (u usage) requestAtMost(name corev1.ResourceName, bound resource.Quantity) error {
	request, requested := u.requests[name]
	atMost, wanted, _ := amounts(bound, request, resource.Quantity{})
	text := fmt.Sprintf("maximum %s usage per %s is %s", name, u.kind, bound.String())
	switch {
	case !requested:
		return fmt.Errorf("%s.  No request is specified", text)
	case wanted > atMost:
		return fmt.Errorf("%s, but request is %s", text, request.String())
	}
	return nil
}

func (u usage) ratioAtMost(name corev1.ResourceName, bound resource.Quantity) error {
	request, limit := u.requests[name], u.limits[name]
	_, wanted, capped := amounts(bound, request, limit)
	text := fmt.Sprintf("%s max limit to request ratio per %s is %s", name, u.kind, bound.String())
	// A missing quantity is zero.
	switch {
	case wanted == 0:
		return fmt.Errorf("%s, but no request is specified or request is 0", text)
	case capped == 0:
		return fmt.Errorf("%s, but no limit is specified or limit is 0", text)
	}
	ratio := float64(capped) / float64(wanted)
	if !ratioWithin(ratio, bound) {
		return fmt.Errorf("%s, but provided ratio is %f", text, ratio)
	}
	return nil
}

// ratioWithin compares in thousandths if the bound is small enough, as amounts does.
func ratioWithin(ratio float64, bound resource.Quantity) bool {
	if bound.Value() > resource.MaxMilliValue {
		return ratio <= float64(bound.Value())
	}
	return ratio*1000 <= float64(bound.MilliValue())
}

// amounts returns the quantities as integers in thousandths. If one of them is too
// large for that, amounts returns all of them in whole units, rounded up.
func amounts(bound, request, limit resource.Quantity) (b, r, l int64) {
	b, r, l = bound.Value(), request.Value(), limit.Value()
	if max(b, r, l) <= resource.MaxMilliValue {
		b, r, l = bound.MilliValue(), request.MilliValue(), limit.MilliValue()
	}
	return b, r, l
}
