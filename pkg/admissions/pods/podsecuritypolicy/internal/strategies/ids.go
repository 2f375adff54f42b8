package strategies

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	policyv1 "github.com/postern-dev/postern/pkg/apis/policy/v1"
)

// idStrategy has the rule and the ranges of a strategy for users or groups.
type idStrategy struct {
	rule   policyv1.Strategy
	ranges []policyv1.IDRange
}

// first returns the default ID, or nil if there is none.
func (i idStrategy) first() *int64 {
	if i.rule != policyv1.MustRunAs {
		return nil
	}
	return new(i.ranges[0].Min)
}

// user is the strategy for the users of containers.
type user struct{ idStrategy }

func newUser(o policyv1.RunAsUserStrategyOptions) (user, error) {
	switch o.Rule {
	case policyv1.MustRunAs:
		if len(o.Ranges) == 0 {
			return user{}, fmt.Errorf("RunAsUser: %s requires at least one range", o.Rule)
		}
	case policyv1.MustRunAsNonRoot, policyv1.RunAsAny:
	default:
		return user{}, fmt.Errorf("RunAsUser: unrecognized strategy %q", o.Rule)
	}
	return user{idStrategy{o.Rule, o.Ranges}}, nil
}

func (u user) check(path *field.Path, nonRoot *bool, id *int64) field.ErrorList {
	switch u.rule {
	case policyv1.MustRunAs:
		if id == nil {
			return field.ErrorList{field.Required(path.Child("runAsUser"), "")}
		}
		if !within(*id, u.ranges) {
			return field.ErrorList{field.Invalid(path.Child("runAsUser"), *id, fmt.Sprintf("must be in the ranges: %v", u.ranges))}
		}
	case policyv1.MustRunAsNonRoot:
		switch {
		case nonRoot == nil && id == nil:
			return field.ErrorList{field.Required(path.Child("runAsNonRoot"), "must be true")}
		case nonRoot != nil && !*nonRoot:
			return field.ErrorList{field.Invalid(path.Child("runAsNonRoot"), false, "must be true")}
		case id != nil && *id == 0:
			return field.ErrorList{field.Invalid(path.Child("runAsUser"), *id, "running with the root UID is forbidden")}
		}
	default:
		// Any user is allowed.
	}
	return nil
}

// groups is the strategy for primary, supplemental or filesystem groups.
type groups struct{ idStrategy }

func newGroups(name string, rule policyv1.Strategy, ranges []policyv1.IDRange) (groups, error) {
	switch rule {
	case policyv1.MustRunAs, policyv1.MayRunAs:
		if len(ranges) == 0 {
			return groups{}, fmt.Errorf("%s: %s requires at least one range", name, rule)
		}
	case policyv1.RunAsAny:
	default:
		return groups{}, fmt.Errorf("%s: unrecognized strategy %q", name, rule)
	}
	return groups{idStrategy{rule, ranges}}, nil
}

func (g groups) check(path *field.Path, ids []int64) field.ErrorList {
	if g.rule == policyv1.RunAsAny {
		return nil
	}
	var errs field.ErrorList
	if len(ids) == 0 && g.rule == policyv1.MustRunAs {
		errs = append(errs, field.Invalid(path, ids, "unable to validate empty groups against required ranges"))
	}
	for _, id := range ids {
		if within(id, g.ranges) {
			continue
		}
		errs = append(errs, field.Invalid(path, ids, fmt.Sprintf("group %d must be in the ranges: %v", id, g.ranges)))
		if len(ids) > maxNamed {
			break
		}
	}
	return errs
}

// maxNamed is the length up to which every wrong group of a list is an error. Each error has the whole list, and users write
// long ones.
const maxNamed = 100

func within(id int64, ranges []policyv1.IDRange) bool {
	for _, r := range ranges {
		if r.Min <= id && id <= r.Max {
			return true
		}
	}
	return false
}
