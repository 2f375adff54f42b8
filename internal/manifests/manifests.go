// Package manifests rewrites streams of manifests, for migrations from one API group to another.
package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"
)

// ErrUnchanged is returned for an input without any object to rewrite, such as the output of a kubectl that failed.
var ErrUnchanged = errors.New("there is nothing to rewrite")

// Migration moves a kind to another API group.
type Migration struct {
	Kind string
	// Rewrite returns the new form of an object, or nil for an object that is not changed.
	Rewrite func(*unstructured.Unstructured) (any, error)
	// Grant is the permission of roles for the kind.
	Grant Grant
	// RelatedOnly leaves out everything except the objects of the kind, the roles that have the permission explicitly, and
	// the bindings to these roles.
	RelatedOnly bool
}

// Rewrite reads YAML or JSON documents and writes YAML documents. All objects lose the metadata that has a meaning only in
// the old cluster. Roles and bindings of v1alpha1 and v1beta1 become those of v1. Lists become documents of their own. All
// other unchanged documents are written as they are. Roles and bindings that each API server makes itself are left out.
//
// A warning names each object that loses something that its owner may miss, and each role that is left out although it
// has the permission. The error names each document that cannot be rewritten, and each one of a version that Kubernetes
// removed and that Rewrite cannot convert. Rewrite writes no document if it returns an error, because incomplete output
// looks like complete output. With ErrUnchanged, it still writes the warnings.
func Rewrite(in io.Reader, out, warnings io.Writer, migration Migration) error {
	s := stream{Migration: migration}
	for _, o := range s.choose(read(in)) {
		text, err := o.text, o.err
		if err == nil {
			text, err = s.object(o)
		}
		if err != nil {
			s.errs = append(s.errs, fmt.Errorf("document %d: %w", o.number, err))
			continue
		}
		s.written = append(s.written, text)
	}
	switch {
	case len(s.errs) > 0:
		return errors.Join(s.errs...)
	case s.changed:
		if _, err := out.Write(bytes.Join(s.written, []byte("---\n"))); err != nil {
			return err
		}
	}
	if _, err := io.WriteString(warnings, strings.Join(s.warnings, "")); err != nil {
		return err
	}
	if !s.changed {
		return ErrUnchanged
	}
	return nil
}

// stream is what Rewrite has made of the objects.
type stream struct {
	Migration
	written  [][]byte
	changed  bool
	warnings []string
	errs     []error
}

// object returns the new text of an object.
func (s *stream) object(o object) ([]byte, error) {
	text, err := s.rewritten(o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", describe(o.Unstructured), err)
	}
	return text, nil
}

func (s *stream) rewritten(o object) ([]byte, error) {
	old := o.DeepCopy()
	if dropped := clean(o.Unstructured); len(dropped) > 0 {
		s.warn(o, "dropped "+strings.Join(dropped, ", "))
	}
	upgraded, err := upgrade(o.Unstructured)
	if err != nil {
		return nil, fmt.Errorf("converting to v1: %w", err)
	}
	rewritten, err := s.Rewrite(o.Unstructured)
	if rewritten == nil && err == nil {
		rewritten, err = s.Grant.role(o.Unstructured)
	}
	if err != nil {
		return nil, err
	}
	s.changed = s.changed || upgraded || rewritten != nil
	if rewritten != nil {
		return yaml.Marshal(rewritten)
	}
	warning, err := checkVersion(o.Unstructured)
	if err != nil {
		return nil, err
	}
	if warning != "" {
		s.warn(o, warning)
	}
	if o.text != nil && reflect.DeepEqual(o.Object, old.Object) {
		return append(bytes.TrimRight(o.text, "\n"), '\n'), nil
	}
	return yaml.Marshal(o.Object)
}

func (s *stream) warn(o object, text string) {
	s.warnings = append(s.warnings, fmt.Sprintf("warning: document %d: %s: %s\n", o.number, describe(o.Unstructured), text))
}

// describe returns the kind, the namespace and the name of an object, as far as it has them.
func describe(u *unstructured.Unstructured) string {
	return strings.TrimSpace(u.GetKind() + " " + klog.KObj(u).String())
}

// Move changes the API group of an object and decodes it strictly into a value: an unknown field is an error.
func Move(u *unstructured.Unstructured, to schema.GroupVersion, into any) (any, error) {
	u.SetAPIVersion(to.String())
	return into, decodeStrictly(u, into)
}

// Grant is a permission that is added to roles.
type Grant struct {
	// Resource is a resource with the same name in all groups. An empty Verb stands for all verbs.
	Verb, Resource string
	// From are the groups of rules that get the permission. To is the group that is added to these rules.
	From []string
	To   string
}

// role adds the permission to a Role or a ClusterRole. It returns nil if no rule changes.
func (g Grant) role(u *unstructured.Unstructured) (any, error) {
	if gk := u.GroupVersionKind().GroupKind(); gk.Group != rbacv1.GroupName || gk.Kind != "Role" && gk.Kind != "ClusterRole" {
		return nil, nil
	}
	if u.Object["rules"] == nil { // API servers write null for no rules.
		return nil, nil
	}
	rules, _, err := unstructured.NestedSlice(u.Object, "rules")
	if err != nil {
		return nil, err
	}
	changed := false
	for _, r := range rules {
		rule, ok := r.(map[string]any)
		if !ok || g.Verb != "" && !names(rule, "verbs", g.Verb) || !names(rule, "resources", g.Resource) {
			continue
		}
		groups, _, err := unstructured.NestedStringSlice(rule, "apiGroups")
		if err != nil {
			return nil, err
		}
		if slices.Contains(groups, g.To) || !slices.ContainsFunc(groups, func(group string) bool { return slices.Contains(g.From, group) }) {
			continue
		}
		if err := unstructured.SetNestedStringSlice(rule, append(groups, g.To), "apiGroups"); err != nil {
			return nil, err
		}
		changed = true
	}
	if !changed {
		return nil, nil
	}
	return u.Object, unstructured.SetNestedSlice(u.Object, rules, "rules")
}

// names reports whether a list of a rule contains a name or the wildcard.
func names(rule map[string]any, list, name string) bool {
	got, _, err := unstructured.NestedStringSlice(rule, list)
	return err == nil && (slices.Contains(got, name) || slices.Contains(got, rbacv1.ResourceAll))
}
