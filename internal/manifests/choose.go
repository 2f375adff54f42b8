package manifests

import (
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// role is what a binding refers to.
type role struct{ kind, namespace, name string }

// choose leaves out the roles and bindings that each API server makes itself, because those of the old cluster belong to its
// version of Kubernetes. With RelatedOnly, it also leaves out everything that is not related to the kind of the migration.
func (s *stream) choose(objects []object) []object {
	related := s.roles(objects)
	bootstrapping := 0
	kept := slices.DeleteFunc(objects, func(o object) bool {
		kind := rbacKind(o)
		switch {
		case o.err != nil:
			return false
		case kind != "" && isBootstrapping(o):
			bootstrapping++
			return true
		case !s.RelatedOnly:
			return false
		}
		switch kind {
		case "Role", "ClusterRole":
			return !related[role{kind, o.GetNamespace(), o.GetName()}]
		case "RoleBinding", "ClusterRoleBinding":
			to := roleOf(o)
			keep, known := related[to]
			if !known {
				s.warn(o, fmt.Sprintf("left out, because the input does not have its %s %s", to.kind, to.name))
			}
			return !keep
		}
		gk := o.GroupVersionKind().GroupKind()
		return gk.Kind != s.Kind || !slices.Contains(s.Grant.groups(), gk.Group)
	})
	if bootstrapping > 0 {
		s.warnings = append(s.warnings, fmt.Sprintf("warning: left out roles and bindings that each API server makes itself (label %s=%s): %d\n",
			bootstrappingLabel, rbacDefaults, bootstrapping))
	}
	return kept
}

// roles returns all roles, with true for those that explicitly have the permission of the grant. It warns of the roles with
// the permission that choose leaves out.
func (s *stream) roles(objects []object) map[role]bool {
	related := map[role]bool{}
	for i := range objects {
		o := &objects[i]
		kind, bootstrapping := rbacKind(*o), isBootstrapping(*o)
		if kind != "Role" && kind != "ClusterRole" || !bootstrapping && !s.RelatedOnly {
			continue
		}
		allowed, explicitly, err := s.Grant.find(o.Unstructured)
		if err != nil {
			o.err = fmt.Errorf("%s: %w", describe(o.Unstructured), err)
			continue
		}
		key := role{kind, o.GetNamespace(), o.GetName()}
		related[key] = related[key] || explicitly // The input may have a role twice.
		switch {
		case bootstrapping && explicitly && o.Object["aggregationRule"] == nil:
			s.warn(*o, "left out, because each API server makes it itself; add its rule for "+s.Grant.Resource+" to a role of your own")
		case !bootstrapping && allowed && !explicitly:
			s.warn(*o, "left out, because it allows "+s.Grant.Resource+" only by wildcards")
		}
	}
	return related
}

// The label of the roles and bindings that each API server makes when it starts.
const bootstrappingLabel, rbacDefaults = "kubernetes.io/bootstrapping", "rbac-defaults"

func isBootstrapping(o object) bool {
	return o.err == nil && o.GetLabels()[bootstrappingLabel] == rbacDefaults
}

// rbacKind returns the kind of a role or a binding of any version, and "" for another object.
func rbacKind(o object) string {
	if o.err != nil {
		return ""
	}
	gk := o.GroupVersionKind().GroupKind()
	if gk.Group != rbacv1.GroupName {
		return ""
	}
	return gk.Kind
}

// roleOf returns the role of a binding.
func roleOf(binding object) role {
	kind, _, _ := unstructured.NestedString(binding.Object, "roleRef", "kind")
	name, _, _ := unstructured.NestedString(binding.Object, "roleRef", "name")
	if kind == "ClusterRole" {
		return role{kind, "", name}
	}
	return role{kind, binding.GetNamespace(), name}
}

// find reports whether a role has the permission in one of the groups, and whether a rule that gives it names the resource
// or the group. Another such rule has wildcards for both, like the one of cluster-admin.
func (g Grant) find(u *unstructured.Unstructured) (allowed, explicitly bool, err error) {
	var content struct {
		Rules []rbacv1.PolicyRule `json:"rules"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &content); err != nil {
		return false, false, err
	}
	for _, rule := range content.Rules {
		resource := slices.Contains(rule.Resources, g.Resource)
		group := slices.ContainsFunc(g.groups(), func(group string) bool { return slices.Contains(rule.APIGroups, group) })
		if (g.Verb == "" || slices.Contains(rule.Verbs, g.Verb) || slices.Contains(rule.Verbs, rbacv1.VerbAll)) &&
			(resource || slices.Contains(rule.Resources, rbacv1.ResourceAll)) &&
			(group || slices.Contains(rule.APIGroups, rbacv1.APIGroupAll)) {
			allowed = true
			explicitly = explicitly || resource || group
		}
	}
	return allowed, explicitly, nil
}

// groups returns the groups of the resource, both the old ones and the new one.
func (g Grant) groups() []string { return append([]string{g.To}, g.From...) }
