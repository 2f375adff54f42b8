package strategies

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	policyv1 "github.com/postern-dev/postern/pkg/apis/policy/v1"
)

// selinux is the strategy for SELinux labels.
type selinux struct {
	// want is nil if any labels are allowed.
	want *corev1.SELinuxOptions
}

func newSELinux(o policyv1.SELinuxStrategyOptions) (selinux, error) {
	switch {
	case o.Rule == policyv1.RunAsAny:
		return selinux{}, nil
	case o.Rule != policyv1.MustRunAs:
		return selinux{}, fmt.Errorf("SELinux: unrecognized strategy %q", o.Rule)
	case o.SELinuxOptions == nil:
		return selinux{}, errors.New("SELinux: MustRunAs requires seLinuxOptions")
	}
	return selinux{o.SELinuxOptions}, nil
}

func (s selinux) check(path *field.Path, got *corev1.SELinuxOptions) field.ErrorList {
	if s.want == nil {
		return nil
	}
	if got == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	for _, part := range []struct {
		name, got, want string
		same            bool
	}{
		{"level", got.Level, s.want.Level, sameLevel(got.Level, s.want.Level)},
		{"role", got.Role, s.want.Role, got.Role == s.want.Role},
		{"type", got.Type, s.want.Type, got.Type == s.want.Type},
		{"user", got.User, s.want.User, got.User == s.want.User},
	} {
		if !part.same {
			errs = append(errs, field.Invalid(path.Child(part.name), part.got, "must be "+part.want))
		}
	}
	return errs
}

// sameLevel compares two levels. The order of the categories does not matter: s0:c1,c2 is s0:c2,c1. Levels of different
// lengths differ, however long one of them is.
func sameLevel(a, b string) bool {
	if a == b {
		return true
	}
	if len(a) != len(b) {
		return false
	}
	sensitivity, categories, ok := strings.Cut(a, ":")
	otherSensitivity, otherCategories, otherOK := strings.Cut(b, ":")
	return ok && otherOK && sensitivity == otherSensitivity && slices.Equal(sorted(categories), sorted(otherCategories))
}

func sorted(categories string) []string {
	return slices.Sorted(strings.SplitSeq(categories, ","))
}
