package admit

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// Phase is one of the two calls of a family.
type Phase int

const (
	// Both stands for both calls. It is the zero value.
	Both Phase = iota
	// Mutating is the first call.
	Mutating
	// Validating is the second call.
	Validating
)

// Rule matches a set of requests.
type Rule struct {
	// Phase restricts the rule to one of the two funcs of the plugin.
	Phase Phase
	// Group is the API group, "" for core, "*" for any.
	Group string
	// Versions are the versions that the plugin decodes. The API server converts
	// requests for other versions. The default is {"v1"}. All rules of a family that
	// overlap have the same versions, because the API server sends each request once.
	Versions []string
	// Resources have the form of a webhook's rule: "pods", "pods/status", "*" (without
	// subresources), "*/*".
	Resources []string
	// Operations are CREATE, UPDATE, DELETE and CONNECT.
	Operations []admissionv1.Operation
	// Scope defaults to all scopes.
	Scope admissionregistrationv1.ScopeType
	// Condition is a CEL expression that is false only if the plugin has nothing to do.
	// It must not fail for any object that the rule matches, so it tests with has
	// every field that may be absent.
	Condition string
	// FailurePolicy defaults to the failure policy of the Plugin.
	FailurePolicy admissionregistrationv1.FailurePolicyType
	// OwnNamespace restricts the rule to Postern's own namespace. All other rules exclude it.
	OwnNamespace bool
}

// On returns the rule for a resource of the core API, in v1.
func On(resource string, operations ...admissionv1.Operation) Rule {
	return Rule{Resources: []string{resource}, Operations: operations}
}

// Of returns a copy of the rule for another API group, in the versions that the plugin decodes. Without versions, it is v1:
// On("deployments", "CREATE").Of("apps").
func (r Rule) Of(group string, versions ...string) Rule {
	r.Group, r.Versions = group, versions
	return r
}

// In returns a copy of the rule for one phase.
func (r Rule) In(p Phase) Rule {
	r.Phase = p
	return r
}

// If returns a copy of the rule with a condition.
func (r Rule) If(condition string) Rule {
	r.Condition = condition
	return r
}

// OrIgnore returns a copy of the rule with failure policy Ignore, for requests that a
// cluster needs to start, or to keep, Postern.
func (r Rule) OrIgnore() Rule {
	r.FailurePolicy = admissionregistrationv1.Ignore
	return r
}

// InOwnNamespace returns a copy of the rule for Postern's own namespace. It must let pass, or fail open for, everything
// that Postern needs to start.
func (r Rule) InOwnNamespace() Rule {
	r.OwnNamespace = true
	return r
}

// check returns an error for a rule that would never match, or that the API server would refuse.
func (r Rule) check() error {
	if group, version, both := strings.Cut(r.Group, "/"); both {
		return fmt.Errorf("the rule for %s has the API group %q, want Of(%q, %q)", strings.Join(r.Resources, ", "), r.Group, group, version)
	}
	switch {
	case len(r.Resources) == 0 || slices.Contains(r.Resources, ""):
		return errors.New("a rule lacks its resource")
	case len(r.Operations) == 0:
		return fmt.Errorf("the rule for %s has no operation", strings.Join(r.Resources, ", "))
	case slices.Contains(r.Versions, ""):
		return fmt.Errorf("the rule for %s has an empty version", strings.Join(r.Resources, ", "))
	case !slices.Contains([]admissionregistrationv1.ScopeType{"", admissionregistrationv1.AllScopes, admissionregistrationv1.ClusterScope, admissionregistrationv1.NamespacedScope}, r.Scope):
		return fmt.Errorf("the rule for %s has the scope %q, want *, Cluster or Namespaced", strings.Join(r.Resources, ", "), r.Scope)
	case !slices.Contains([]admissionregistrationv1.FailurePolicyType{"", admissionregistrationv1.Fail, admissionregistrationv1.Ignore}, r.FailurePolicy):
		return fmt.Errorf("the rule for %s has the failure policy %q, want Fail or Ignore", strings.Join(r.Resources, ", "), r.FailurePolicy)
	}
	for _, op := range r.Operations {
		if !slices.Contains(operations(), op) {
			return fmt.Errorf("the rule for %s has the operation %q, want one of %v", strings.Join(r.Resources, ", "), op, operations())
		}
	}
	return nil
}

// operations returns all operations, in the order of webhook rules.
func operations() []admissionv1.Operation {
	return []admissionv1.Operation{admissionv1.Create, admissionv1.Update, admissionv1.Delete, admissionv1.Connect}
}

func (r Rule) holds(p Phase) bool { return r.Phase == Both || r.Phase == p }

func (r Rule) versions() []string {
	if len(r.Versions) == 0 {
		return []string{"v1"}
	}
	return r.Versions
}

// matches reports whether the rule covers a request. It does not look at the version:
// the API server converts to a version of the rule, and all rules of the family that
// cover the request have the same ones.
func (r *Rule) matches(ar *admissionv1.AdmissionRequest) bool {
	if r.Group != "*" && r.Group != ar.Resource.Group {
		return false
	}
	if !slices.Contains(r.Operations, ar.Operation) {
		return false
	}
	// A Namespace is cluster-scoped although its requests carry a namespace. The API
	// server matches the scope of webhook rules in the same way.
	namespaced := ar.Namespace != "" && (ar.Resource.Group != "" || ar.Resource.Resource != "namespaces")
	if r.Scope == admissionregistrationv1.NamespacedScope && !namespaced || r.Scope == admissionregistrationv1.ClusterScope && namespaced {
		return false
	}
	return slices.ContainsFunc(r.Resources, func(want string) bool { return reaches(want, ar.Resource.Resource, ar.SubResource) })
}

// reaches reports whether a resource of a rule, such as pods/status, covers a
// resource and subresource, or those of another rule.
func reaches(want, resource, subresource string) bool {
	main, sub, _ := strings.Cut(want, "/")
	return (main == "*" || main == resource) && (sub == "*" || sub == subresource)
}

// overlapping reports whether a rule of each list may match the same request. It
// ignores the scope.
func overlapping(rules, others []Rule) bool {
	return slices.ContainsFunc(rules, func(r Rule) bool { return slices.ContainsFunc(others, r.overlaps) })
}

func (r Rule) overlaps(o Rule) bool {
	either := func(a, b string) bool { return a == b || a == "*" || b == "*" }
	sameOperation := func(op admissionv1.Operation) bool { return slices.Contains(o.Operations, op) }
	sameResource := func(x string) bool {
		main, sub, _ := strings.Cut(x, "/")
		return slices.ContainsFunc(o.Resources, func(y string) bool {
			otherMain, otherSub, _ := strings.Cut(y, "/")
			return either(main, otherMain) && either(sub, otherSub)
		})
	}
	return either(r.Group, o.Group) && slices.ContainsFunc(r.Operations, sameOperation) && slices.ContainsFunc(r.Resources, sameResource)
}
