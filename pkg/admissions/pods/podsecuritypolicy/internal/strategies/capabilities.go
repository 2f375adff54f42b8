package strategies

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/postern-dev/postern/internal/kinds/podspec"
	policyv1 "github.com/postern-dev/postern/pkg/apis/policy/v1"
)

// capabilities is the strategy for Linux capabilities.
type capabilities struct {
	add, allowed sets.Set[corev1.Capability]
	drop         []corev1.Capability
}

func newCapabilities(s *policyv1.PodSecurityPolicySpec) capabilities {
	return capabilities{add: sets.New(s.DefaultAddCapabilities...), allowed: sets.New(s.AllowedCapabilities...), drop: s.RequiredDropCapabilities}
}

// setDefault adds the default capabilities, without those that the container drops, and drops the required ones. It
// leaves the lists alone if both have all of them.
func (s capabilities) setDefault(c podspec.Container) {
	got := context(c).Capabilities
	if got == nil {
		got = &corev1.Capabilities{}
	}
	add, drop := sets.New(got.Add...), sets.New(got.Drop...)
	wantAdd, wantDrop := add.Union(s.add.Difference(drop)), drop.Union(sets.New(s.drop...))
	if len(wantAdd) == len(add) && len(wantDrop) == len(drop) {
		return
	}
	ownContext(c).Capabilities = &corev1.Capabilities{Add: listed(wantAdd), Drop: listed(wantDrop)}
}

// listed returns a sorted list, or nil if the set is empty.
func listed(s sets.Set[corev1.Capability]) []corev1.Capability {
	if len(s) == 0 {
		return nil
	}
	return sets.List(s)
}

func (s capabilities) check(path *field.Path, got *corev1.Capabilities) field.ErrorList {
	if got == nil {
		if len(s.add) == 0 && len(s.drop) == 0 {
			return nil
		}
		return field.ErrorList{field.Invalid(path, got, "required capabilities are not set on the securityContext")}
	}
	if s.allowed.Has(policyv1.AllowAll) {
		// Upstream: the wildcard also allows not to drop what has to be dropped.
		return nil
	}
	var errs field.ErrorList
	for _, c := range got.Add {
		if len(errs) == maxViolations {
			break
		}
		if !s.add.Has(c) && !s.allowed.Has(c) {
			errs = append(errs, field.Invalid(path.Child("add"), string(c), "capability may not be added"))
		}
	}
	dropped := sets.New(got.Drop...)
	for _, c := range s.drop {
		if !dropped.Has(c) {
			errs = append(errs, field.Invalid(path.Child("drop"), got.Drop, fmt.Sprintf("%s is required to be dropped but was not found", c)))
		}
	}
	return errs
}
