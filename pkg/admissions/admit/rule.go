package admit

import (
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// Phase is when a rule holds.
type Phase int

const (
	// Both is the zero value.
	Both Phase = iota
	// Mutating is the first call of a family.
	Mutating
	// Validating is the second.
	Validating
)

// Rule is a set of requests.
type Rule struct {
	// Phase restricts the rule to one of the plugin's two funcs.
	Phase Phase
	// Group is the API group, "" for core, "*" for any.
	Group string
	// Versions are those that the plugin can decode; the API server converts
	// requests of others. {"v1"} where not set.
	Versions []string
	// Resources are as in a webhook's rule: "pods", "pods/status", "*" (no
	// subresources), "*/*".
	Resources []string
	// Operations are the verbs of admission.
	Operations []admissionv1.Operation
	// Scope is all scopes where not set.
	Scope admissionregistrationv1.ScopeType
	// Condition is a CEL expression that is false only where the plugin would
	// have nothing to do. It may not fail for any object that the rule matches:
	// what may be absent is asked for with has.
	Condition string
	// FailurePolicy is the Plugin's where not set.
	FailurePolicy admissionregistrationv1.FailurePolicyType
}

// On returns the rule for core v1 resources.
func On(resource string, operations ...admissionv1.Operation) Rule {
	return Rule{Resources: []string{resource}, Operations: operations}
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

// OrIgnore returns a copy of the rule for requests that pass while we do not
// answer: those that a cluster needs to get, or to keep, us running.
func (r Rule) OrIgnore() Rule {
	r.FailurePolicy = admissionregistrationv1.Ignore
	return r
}

func (r Rule) holds(p Phase) bool { return r.Phase == Both || r.Phase == p }

func (r Rule) versions() []string {
	if len(r.Versions) == 0 {
		return []string{"v1"}
	}
	return r.Versions
}

// matches reports whether the rule covers a request. The version is not looked
// at: the API server converts to one that was registered.
func (r Rule) matches(ar *admissionv1.AdmissionRequest) bool {
	if r.Group != "*" && r.Group != ar.Resource.Group {
		return false
	}
	if !slices.Contains(r.Operations, ar.Operation) {
		return false
	}
	// As for webhooks, a Namespace is cluster-scoped though its requests carry a
	// namespace.
	namespaced := ar.Namespace != "" && (ar.Resource.Group != "" || ar.Resource.Resource != "namespaces")
	switch r.Scope {
	case admissionregistrationv1.NamespacedScope:
		if !namespaced {
			return false
		}
	case admissionregistrationv1.ClusterScope:
		if namespaced {
			return false
		}
	case admissionregistrationv1.AllScopes:
	}
	return slices.ContainsFunc(r.Resources, func(want string) bool { return reaches(want, ar.Resource.Resource, ar.SubResource) })
}

// reaches reports whether a resource of a rule, such as pods/status, covers a
// resource, or another one of a rule.
func reaches(want, resource, subresource string) bool {
	main, sub, _ := strings.Cut(want, "/")
	return (main == "*" || main == resource) && (sub == "*" || sub == subresource)
}

// overlapping reports whether there could be requests that rules of both lists
// match, whatever their scope.
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
