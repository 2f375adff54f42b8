package admit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// disjunction returns the CEL expression that is true where any of the rules has
// something to do, or "" if that is everywhere.
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
	var terms []string
	for _, r := range rules {
		term := r.guard(all)
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

// guard is the CEL for the requests of the rule among those of all rules, "" if
// they are the same.
func (r Rule) guard(all map[atom][]admissionv1.Operation) string {
	own := atoms([]Rule{r})
	same := len(own) == len(all)
	for a, ops := range own {
		same = same && slices.Equal(all[a], ops)
	}
	if same {
		return ""
	}
	return r.requests(all)
}

// anyOf is the CEL for the requests of the rules among those of all rules.
func anyOf(rules, among []Rule) string {
	all := atoms(among)
	var terms []string
	for _, r := range rules {
		if term := "(" + r.requests(all) + ")"; !slices.Contains(terms, term) {
			terms = append(terms, term)
		}
	}
	return strings.Join(terms, " || ")
}

// requests is the CEL for the requests of the rule, as far as requests of all
// rules differ.
func (r Rule) requests(all map[atom][]admissionv1.Operation) string {
	var terms []string
	if r.Group != "*" {
		terms = append(terms, fmt.Sprintf("request.resource.group == '%s'", r.Group))
	}
	if r.versionMatters(all) {
		terms = append(terms, "request.resource.version in "+CELStrings(r.versions()))
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

// versionMatters reports whether another rule is for other versions of the same
// resource. Else the version is not asked for: the one that CEL knows is that of
// the client's request, which the API server may have converted.
func (r Rule) versionMatters(all map[atom][]admissionv1.Operation) bool {
	if slices.Contains(r.versions(), "*") {
		return false
	}
	for a := range all {
		other := Rule{Group: a.group, Resources: []string{a.resource}, Operations: r.Operations}
		if a.versions != strings.Join(r.versions(), ",") && a.group == r.Group && r.overlaps(other) {
			return true
		}
	}
	return false
}

func (r Rule) resources() string {
	var resources []string
	for _, res := range r.Resources {
		main, sub, _ := strings.Cut(res, "/")
		var parts []string
		if main != "*" {
			parts = append(parts, fmt.Sprintf("request.resource.resource == '%s'", main))
		}
		if sub != "*" {
			parts = append(parts, fmt.Sprintf("(has(request.subResource) ? request.subResource : '') == '%s'", sub))
		}
		resources = append(resources, cmp.Or(strings.Join(parts, " && "), "true"))
	}
	return strings.Join(resources, " || ")
}
