// Package manifests rewrites streams of manifests, for migrations from one API group to another.
package manifests

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"github.com/postern-dev/postern/internal/documents"
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
// other unchanged YAML documents are written as they are.
//
// Warnings name each object that loses something that its owner may miss, and most of those that are left out although they
// give permission for the kind. The error names each document that cannot be rewritten, and each one of a version that
// Kubernetes removed and that Rewrite cannot convert. Rewrite writes no document if it returns an error, because incomplete
// output looks like complete output. With ErrUnchanged, it still writes the warnings.
func Rewrite(in io.Reader, out, warnings io.Writer, migration Migration) error {
	s := stream{Migration: migration}
	for _, o := range s.choose(slices.Collect(documents.Read(in))) {
		text, err := s.rewritten(o)
		if err != nil {
			s.errs = append(s.errs, fmt.Errorf("%s: %s", where(o), strings.ReplaceAll(err.Error(), "\n", ", ")))
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

// rewritten returns the new text of an object.
func (s *stream) rewritten(o documents.Object) ([]byte, error) {
	if o.Err != nil {
		return nil, o.Err
	}
	old := o.DeepCopy()
	if dropped := clean(o.Unstructured); len(dropped) > 0 {
		s.warn(o, "dropped "+strings.Join(dropped, ", "))
	}
	upgraded, err := upgrade(o.Unstructured)
	if err != nil {
		return nil, fmt.Errorf("converting to v1: %w", err)
	}
	rewritten, err := s.Rewrite(o.Unstructured)
	if gvk := o.GroupVersionKind(); rewritten == nil && err == nil && gvk.Kind == s.Kind && slices.Contains(s.Grant.From, gvk.Group) {
		err = fmt.Errorf("no Kubernetes had %s of this kind", gvk.GroupVersion())
	}
	if rewritten == nil && err == nil {
		rewritten, err = s.Grant.role(o.Unstructured)
	}
	if err != nil {
		return nil, err
	}
	s.changed = s.changed || upgraded || rewritten != nil
	if rewritten != nil {
		return encode(rewritten)
	}
	warning, err := checkVersion(o.Unstructured)
	if err != nil {
		return nil, err
	}
	if warning != "" {
		s.warn(o, warning)
	}
	if o.Text != nil && reflect.DeepEqual(o.Object, old.Object) {
		return o.Text, nil
	}
	return encode(o.Object)
}

// encode returns the YAML of an object. YAML refuses or changes some characters and keys of JSON, such as U+0085 and "<<".
func encode(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	text, err := yaml.JSONToYAML(data)
	var want, got any
	err = cmp.Or(err, json.Unmarshal(data, &want), yaml.Unmarshal(text, &got))
	if err == nil && !reflect.DeepEqual(got, want) {
		err = errors.New("it would change")
	}
	if err != nil {
		return nil, fmt.Errorf("YAML cannot carry one of its texts: %w", err)
	}
	return text, nil
}

func (s *stream) warn(o documents.Object, text string) {
	s.warnings = append(s.warnings, fmt.Sprintf("warning: %s: %s\n", where(o), text))
}

// where returns the number of the document, and the kind, the namespace and the name of the object, as far as it has them.
func where(o documents.Object) string {
	document := fmt.Sprintf("document %d", o.Number)
	if o.Unstructured == nil {
		return document
	}
	about := strings.TrimSpace(o.GetKind() + " " + klog.KObj(o).String())
	if quoted := strconv.Quote(about); quoted != `"`+about+`"` {
		about = quoted // such as a name with a line end
	}
	if about == "" {
		return document
	}
	return document + ": " + about
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
	if !isRole(u) {
		return nil, nil
	}
	rules, err := rulesOf(u)
	if err != nil {
		return nil, err
	}
	changed := false
	for i, r := range rules {
		if !g.isIn(r) || slices.Contains(r.APIGroups, g.To) || !names(r.APIGroups, g.From...) {
			continue
		}
		// The other fields of the rule stay as they are.
		raw := u.Object["rules"].([]any)[i].(map[string]any)
		if err := unstructured.SetNestedStringSlice(raw, append(r.APIGroups, g.To), "apiGroups"); err != nil {
			return nil, err
		}
		changed = true
	}
	if !changed {
		return nil, nil
	}
	return u.Object, nil
}

// permission returns what the rules of a role say about the resource.
func (g Grant) permission(rules []rbacv1.PolicyRule) permission {
	out := none
	for _, r := range rules {
		switch resource, group := slices.Contains(r.Resources, g.Resource), names(r.APIGroups, g.groups()...); {
		case !g.isIn(r), !group && !slices.Contains(r.APIGroups, rbacv1.APIGroupAll):
		case resource || group:
			return explicitly
		default:
			out = byWildcards
		}
	}
	return out
}

// isIn reports whether a rule has the verb and the resource, or wildcards for them.
func (g Grant) isIn(r rbacv1.PolicyRule) bool {
	return (g.Verb == "" || names(r.Verbs, g.Verb, rbacv1.VerbAll)) && names(r.Resources, g.Resource, rbacv1.ResourceAll)
}

// groups returns the groups of the resource, both the old ones and the new one.
func (g Grant) groups() []string { return append([]string{g.To}, g.From...) }

// names reports whether a list of a rule contains one of the names.
func names(list []string, names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return slices.Contains(list, name) })
}

func rulesOf(role *unstructured.Unstructured) ([]rbacv1.PolicyRule, error) {
	var content struct {
		Rules []rbacv1.PolicyRule `json:"rules"`
	}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(role.Object, &content)
	return content.Rules, err
}
