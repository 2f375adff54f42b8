package admit

import (
	"cmp"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// disjunction returns the CEL expression that is true for requests for which any of
// the rules has something to do, or "" if that is every request.
func disjunction(rules []Rule) string {
	unconditional := slices.DeleteFunc(slices.Clone(rules), func(r Rule) bool { return r.Condition != "" })
	always, all := atoms(unconditional), atoms(rules)
	everywhere := len(always) == len(all)
	for a, ops := range all {
		everywhere = everywhere && slices.Equal(always[a], ops)
	}
	if everywhere {
		return ""
	}
	return anyOf(rules, func(r Rule) string { return r.guard(all) })
}

// guard returns the CEL expression for the requests of the rule, or "" if all rules
// together match the same requests.
func (r Rule) guard(all map[atom][]admissionv1.Operation) string {
	own := atoms([]Rule{r})
	same := len(own) == len(all)
	for a, ops := range own {
		same = same && slices.Equal(all[a], ops)
	}
	if same {
		return ""
	}
	return r.requests()
}

// anyOf returns the CEL expression for the requests for which any of the rules has
// something to do. The func requests returns the CEL expression for the requests of a
// rule without its condition, or "" for all requests.
func anyOf(rules []Rule, requests func(Rule) string) string {
	var terms []string
	for _, r := range rules {
		term := requests(r)
		switch {
		case r.Condition != "" && term != "":
			term += " && (" + r.Condition + ")"
		case r.Condition != "":
			term = r.Condition
		}
		if term = "(" + term + ")"; !slices.Contains(terms, term) {
			terms = append(terms, term)
		}
	}
	return strings.Join(terms, " || ")
}

// requests returns the CEL expression for the requests of the rule. The expression
// ignores the version: request.resource has the version of the client's request, from
// which the API server may have converted, and sameVersions excludes a rule for
// another version of the resource.
func (r Rule) requests() string {
	var terms []string
	if r.Group != "*" {
		terms = append(terms, "request.resource.group == "+CELString(r.Group))
	}
	isNamespace := "(request.resource.group == '' && request.resource.resource == 'namespaces')"
	switch r.Scope {
	case admissionregistrationv1.NamespacedScope:
		terms = append(terms, "has(request.namespace) && !"+isNamespace)
	case admissionregistrationv1.ClusterScope:
		terms = append(terms, "(!has(request.namespace) || "+isNamespace+")")
	case admissionregistrationv1.AllScopes:
	}
	terms = append(terms, "request.operation in "+CELStrings(r.Operations), "("+r.resources()+")")
	return strings.Join(terms, " && ")
}

func (r Rule) resources() string {
	var resources []string
	for _, res := range r.Resources {
		main, sub, _ := strings.Cut(res, "/")
		var parts []string
		if main != "*" {
			parts = append(parts, "request.resource.resource == "+CELString(main))
		}
		if sub != "*" {
			parts = append(parts, "(has(request.subResource) ? request.subResource : '') == "+CELString(sub))
		}
		resources = append(resources, cmp.Or(strings.Join(parts, " && "), "true"))
	}
	return strings.Join(resources, " || ")
}
