// Package access describes permissions of the Kubernetes API. Plugins use it to declare the permissions that they
// need, and the rbac command to print roles that grant these permissions.
package access

import (
	"cmp"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/component-helpers/auth/rbac/validation"
)

// Rules are rules of a role.
type Rules = []rbacv1.PolicyRule

// To returns the permission for some verbs on a resource. The group of the core API is "".
func To(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}

// Watch returns the permission that an informer needs.
func Watch(group, resource string) rbacv1.PolicyRule { return To(group, resource, "list", "watch") }

// Lookup returns the permission that an informer and admit.Lookup need.
func Lookup(group, resource string) rbacv1.PolicyRule {
	return To(group, resource, "get", "list", "watch")
}

// Review returns the permission that an admit.AuthorizeFunc needs.
func Review() rbacv1.PolicyRule {
	return To("authorization.k8s.io", "subjectaccessreviews", "create")
}

// Permission is one verb on one resource.
type Permission struct{ Verb, Group, Resource string }

// Of returns the permissions that rules grant, in order and without duplicates. It ignores the names of objects.
func Of(rules Rules) []Permission {
	var out []Permission
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					out = append(out, Permission{verb, group, resource})
				}
			}
		}
	}
	slices.SortFunc(out, Permission.Compare)
	return slices.Compact(out)
}

// Grants reports whether rules grant a permission, for some objects at least: it does not compare the names of objects.
func Grants(rules Rules, p Permission) bool {
	for _, rule := range rules {
		if !slices.Contains([]string{"create", "deletecollection", "list", "watch"}, p.Verb) {
			// These requests have no name, so no rule with names permits them.
			rule.ResourceNames = nil
		}
		if ok, _ := validation.Covers(Rules{rule}, Rules{To(p.Group, p.Resource, p.Verb)}); ok {
			return true
		}
	}
	return false
}

// Compare orders permissions by group, then by resource, then by verb.
func (p Permission) Compare(o Permission) int {
	return cmp.Or(strings.Compare(p.Group, o.Group), strings.Compare(p.Resource, o.Resource), strings.Compare(p.Verb, o.Verb))
}

// String returns the permission as a rule in YAML.
func (p Permission) String() string {
	return `{apiGroups: ["` + p.Group + `"], resources: [` + p.Resource + `], verbs: [` + p.Verb + `]}`
}
