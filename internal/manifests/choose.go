package manifests

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/postern-dev/postern/internal/documents"
)

// role is what a binding refers to.
type role struct{ kind, namespace, name string }

// choose leaves out what is not related to the kind of the migration. A warning names each object that gives permission for the
// kind and is left out, and one warning counts the others.
func (s *stream) choose(objects []documents.Object) []documents.Object {
	if !s.RelatedOnly {
		return objects
	}
	roles := s.roles(objects)
	others := map[string]int{}
	kept := slices.DeleteFunc(objects, func(o documents.Object) bool {
		if o.Err != nil {
			return false
		}
		keep, reason := s.related(o, roles)
		switch {
		case keep:
			return false
		case reason != "":
			s.warn(o, "left out, because "+reason)
		default:
			others[o.GetKind()]++
		}
		return true
	})
	if len(others) > 0 {
		var counts []string
		for _, kind := range slices.Sorted(maps.Keys(others)) {
			counts = append(counts, fmt.Sprintf("%d %s", others[kind], kind))
		}
		s.warnings = append(s.warnings, fmt.Sprintf("warning: left out what is not related to %s: %s\n", s.Grant.Resource, strings.Join(counts, ", ")))
	}
	return kept
}

// related reports whether an object is related to the kind of the migration, or why an object with permission for the kind is
// left out.
func (s *stream) related(o documents.Object, roles map[role]permission) (keep bool, reason string) {
	made := bootstrapped(o)
	switch rbacKind(o.Unstructured) {
	case "Role", "ClusterRole":
		switch p := roles[roleOf(o)]; {
		case made && p == explicitly && o.Object["aggregationRule"] == nil:
			return false, "each API server makes it itself: add its rule for " + s.Grant.Resource + " to a role of your own"
		case !made && p == byWildcards:
			return false, "it allows " + s.Grant.Resource + " only by wildcards"
		default:
			return !made && p == explicitly, ""
		}
	case "RoleBinding", "ClusterRoleBinding":
		to := boundRole(o)
		switch p, known := roles[to]; {
		case to.kind == "" || to.name == "":
			return false, "its roleRef has no kind or no name"
		case !known:
			return false, fmt.Sprintf("the input does not have its %s %s", to.kind, to.name)
		case !made && p == byWildcards:
			return false, fmt.Sprintf("its %s %s allows %s only by wildcards", to.kind, to.name, s.Grant.Resource)
		default:
			return p == explicitly, ""
		}
	}
	gk := o.GroupVersionKind().GroupKind()
	return gk.Kind == s.Kind && slices.Contains(s.Grant.groups(), gk.Group), ""
}

// bootstrapped reports whether each API server makes a role or a binding itself. Others have the label too if somebody copied
// one of these.
//
// Upstream: k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy.
func bootstrapped(o documents.Object) bool {
	others := []string{"cluster-admin", "admin", "edit", "view", "extension-apiserver-authentication-reader"}
	return o.GetLabels()["kubernetes.io/bootstrapping"] == "rbac-defaults" &&
		(strings.HasPrefix(o.GetName(), "system:") || slices.Contains(others, o.GetName()))
}

// permission is what a role says about the resource of a grant.
type permission int

const (
	none permission = iota
	// byWildcards is the permission of rules with wildcards for both the group and the resource, like that of cluster-admin.
	byWildcards
	// explicitly is the permission of a rule that names the resource or the group.
	explicitly
)

// roles returns the permissions of all roles. The input may have a role twice. The rules of an aggregated role are those of
// other roles, and only an API server fills them in.
func (s *stream) roles(objects []documents.Object) map[role]permission {
	out, selectors := map[role]permission{}, map[role][]labels.Selector{}
	for i := range objects {
		o := &objects[i]
		if o.Err != nil || !isRole(o.Unstructured) {
			continue
		}
		rules, err := rulesOf(o.Unstructured)
		of, errOf := aggregated(o.Unstructured)
		_, _, errLabels := unstructured.NestedStringMap(o.Object, "metadata", "labels")
		if o.Err = cmp.Or(err, errOf, errLabels); o.Err != nil {
			continue
		}
		key := roleOf(*o)
		out[key] = max(out[key], s.Grant.permission(rules))
		if len(of) > 0 {
			selectors[key] = append(selectors[key], of...)
		}
	}
	for changed := true; changed; {
		changed = false
		for _, o := range objects {
			if o.Err != nil || rbacKind(o.Unstructured) != "ClusterRole" {
				continue
			}
			p, its := out[roleOf(o)], labels.Set(o.GetLabels())
			for to, of := range selectors {
				if out[to] < p && slices.ContainsFunc(of, func(s labels.Selector) bool { return s.Matches(its) }) {
					out[to], changed = p, true
				}
			}
		}
	}
	return out
}

// aggregated returns the selectors of the roles whose rules a role has.
func aggregated(u *unstructured.Unstructured) (out []labels.Selector, err error) {
	var content struct {
		AggregationRule *rbacv1.AggregationRule `json:"aggregationRule"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &content); err != nil || content.AggregationRule == nil {
		return nil, err
	}
	for i := range content.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&content.AggregationRule.ClusterRoleSelectors[i])
		if err != nil {
			return nil, err
		}
		out = append(out, selector)
	}
	return out, nil
}

// rbacKind returns the kind of a role or a binding of any version, and "" for another object.
func rbacKind(u *unstructured.Unstructured) string {
	gk := u.GroupVersionKind().GroupKind()
	if gk.Group != rbacv1.GroupName {
		return ""
	}
	return gk.Kind
}

func isRole(u *unstructured.Unstructured) bool {
	kind := rbacKind(u)
	return kind == "Role" || kind == "ClusterRole"
}

// roleOf returns the key of a role.
func roleOf(o documents.Object) role {
	if o.GetKind() == "ClusterRole" {
		return role{"ClusterRole", "", o.GetName()}
	}
	return role{o.GetKind(), o.GetNamespace(), o.GetName()}
}

// boundRole returns the role of a binding.
func boundRole(binding documents.Object) role {
	kind, _, _ := unstructured.NestedString(binding.Object, "roleRef", "kind")
	name, _, _ := unstructured.NestedString(binding.Object, "roleRef", "name")
	if kind == "ClusterRole" {
		return role{kind, "", name}
	}
	return role{kind, binding.GetNamespace(), name}
}
