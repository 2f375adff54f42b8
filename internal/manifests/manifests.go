// Package manifests rewrites streams of manifests, for migrations from one API group to another.
package manifests

import (
	"bufio"
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
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/klog/v2"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// ErrUnchanged is returned for an input without any object to rewrite, such as the output of a kubectl that failed.
var ErrUnchanged = errors.New("there is nothing to rewrite")

// Rewriter returns the new form of an object, or nil for an object that is not changed.
type Rewriter func(*unstructured.Unstructured) (any, error)

// Rewrite reads YAML or JSON documents and writes YAML documents. All objects lose the metadata that has a meaning only in
// the old cluster. Roles and bindings of v1alpha1 and v1beta1 become those of v1. Lists become documents of their own. All
// other unchanged documents are written as they are.
//
// A warning names each object that loses something that its owner may miss. The error names each document that cannot be
// rewritten, and each one of a version that Kubernetes removed and that Rewrite cannot convert. Rewrite writes nothing if it
// returns an error, because incomplete output looks like complete output.
func Rewrite(in io.Reader, out, warnings io.Writer, rewrite Rewriter) error {
	docs := utilyaml.NewYAMLReader(bufio.NewReader(in))
	s := stream{rewrite: rewrite}
	for s.number = 1; ; s.number++ {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return errors.Join(append(s.errs, fmt.Errorf("reading document %d: %w", s.number, err))...)
		}
		if err := s.document(doc); err != nil {
			s.errs = append(s.errs, fmt.Errorf("document %d: %w", s.number, err))
		}
	}
	switch {
	case len(s.errs) > 0:
		return errors.Join(s.errs...)
	case !s.changed:
		return ErrUnchanged
	}
	if _, err := out.Write(bytes.Join(s.written, []byte("---\n"))); err != nil {
		return err
	}
	_, err := io.WriteString(warnings, strings.Join(s.warnings, ""))
	return err
}

// stream is what Rewrite knows about the documents that it has read.
type stream struct {
	rewrite  Rewriter
	number   int
	written  [][]byte
	changed  bool
	warnings []string
	errs     []error
}

// document rewrites one document. An empty document is left out.
func (s *stream) document(text []byte) error {
	data, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return err
	}
	u := unstructured.Unstructured{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &u.Object); err != nil {
		return err
	}
	s.object(&u, text)
	return nil
}

// object rewrites an object, or the items of a list. The text is nil for an item.
func (s *stream) object(u *unstructured.Unstructured, text []byte) {
	var out []byte
	var err error
	switch {
	case len(u.Object) == 0:
		return
	case u.IsList():
		err = s.list(u)
	default:
		out, err = s.single(u, text)
	}
	if err != nil {
		s.errs = append(s.errs, fmt.Errorf("document %d: %s: %w", s.number, describe(u), err))
	}
	if out != nil {
		s.written = append(s.written, out)
	}
}

func (s *stream) list(u *unstructured.Unstructured) error {
	list, err := u.ToList()
	if err != nil {
		return err
	}
	kind, typed := strings.CutSuffix(u.GetKind(), "List")
	for i := range list.Items {
		item := &list.Items[i]
		// API servers leave the kind of items out, unlike kubectl.
		if typed && kind != "" && item.GetKind() == "" {
			item.SetAPIVersion(u.GetAPIVersion())
			item.SetKind(kind)
		}
		s.object(item, nil)
	}
	return nil
}

// single returns the new text of an object that is no list.
func (s *stream) single(u *unstructured.Unstructured, text []byte) ([]byte, error) {
	old := u.DeepCopy()
	if dropped := clean(u); len(dropped) > 0 {
		s.warn(u, "dropped "+strings.Join(dropped, ", "))
	}
	upgraded, err := upgrade(u)
	if err != nil {
		return nil, fmt.Errorf("converting to v1: %w", err)
	}
	rewritten, err := s.rewrite(u)
	if err != nil {
		return nil, err
	}
	s.changed = s.changed || upgraded || rewritten != nil
	if rewritten != nil {
		return yaml.Marshal(rewritten)
	}
	warning, err := checkVersion(u)
	if err != nil {
		return nil, err
	}
	if warning != "" {
		s.warn(u, warning)
	}
	if text != nil && reflect.DeepEqual(u.Object, old.Object) {
		return append(bytes.TrimRight(text, "\n"), '\n'), nil
	}
	return yaml.Marshal(u.Object)
}

func (s *stream) warn(u *unstructured.Unstructured, text string) {
	s.warnings = append(s.warnings, fmt.Sprintf("warning: document %d: %s: %s\n", s.number, describe(u), text))
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

// Role adds the permission to a Role or a ClusterRole. It returns nil if no rule changes.
func (g Grant) Role(u *unstructured.Unstructured) (any, error) {
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
