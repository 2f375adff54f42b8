// Package manifests rewrites streams of manifests, for migrations from one API group to another.
package manifests

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// ErrUnchanged is returned for an input without any object to rewrite, such as the output of a kubectl that failed.
var ErrUnchanged = errors.New("there is nothing to rewrite")

// Rewriter returns the new form of an object, or nil for an object that is not changed.
type Rewriter func(*unstructured.Unstructured) (any, error)

// Rewrite reads YAML or JSON documents and writes YAML documents. Lists become documents of their own. All other unchanged
// documents are written as they are. It writes nothing if it returns an error.
func Rewrite(in io.Reader, out io.Writer, rewrite Rewriter) error {
	docs := utilyaml.NewYAMLReader(bufio.NewReader(in))
	var written [][]byte
	rewritten := false
	for n := 1; ; n++ {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("reading document %d: %w", n, err)
		}
		parts, changed, err := rewrite.document(doc)
		if err != nil {
			return fmt.Errorf("document %d: %w", n, err)
		}
		written, rewritten = append(written, parts...), rewritten || changed
	}
	if !rewritten {
		return ErrUnchanged
	}
	_, err := out.Write(bytes.Join(written, []byte("---\n")))
	return err
}

// document rewrites one document. It returns several documents for a list, and none for an empty document.
func (rewrite Rewriter) document(doc []byte) (out [][]byte, changed bool, err error) {
	data, err := yaml.YAMLToJSONStrict(doc)
	if err != nil {
		return nil, false, err
	}
	u := unstructured.Unstructured{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &u.Object); err != nil {
		return nil, false, err
	}
	switch {
	case len(u.Object) == 0:
		return nil, false, nil
	case u.IsList():
		return rewrite.list(&u)
	}
	rewritten, err := rewrite(&u)
	if err != nil {
		return nil, false, fmt.Errorf("%s %s: %w", u.GetKind(), u.GetName(), err)
	}
	if rewritten == nil {
		return [][]byte{append(bytes.TrimRight(doc, "\n"), '\n')}, false, nil
	}
	text, err := yaml.Marshal(rewritten)
	return [][]byte{text}, true, err
}

func (rewrite Rewriter) list(u *unstructured.Unstructured) (out [][]byte, changed bool, err error) {
	err = u.EachListItem(func(item runtime.Object) error {
		text, err := yaml.Marshal(item)
		if err != nil {
			return err
		}
		parts, rewritten, err := rewrite.document(text)
		out, changed = append(out, parts...), changed || rewritten
		return err
	})
	return out, changed, err
}

// Move changes the API group of an object and decodes it strictly into a value: an unknown field is an error.
func Move(u *unstructured.Unstructured, to schema.GroupVersion, into any) (any, error) {
	u.SetAPIVersion(to.String())
	clean(u)
	data, err := json.Marshal(u.Object)
	if err != nil {
		return nil, err
	}
	strict, err := kjson.UnmarshalStrict(data, into)
	return into, errors.Join(append(strict, err)...)
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
	clean(u)
	return u.Object, unstructured.SetNestedSlice(u.Object, rules, "rules")
}

// names reports whether a list of a rule contains a name or the wildcard.
func names(rule map[string]any, list, name string) bool {
	got, _, err := unstructured.NestedStringSlice(rule, list)
	return err == nil && (slices.Contains(got, name) || slices.Contains(got, rbacv1.ResourceAll))
}

// clean removes the fields that API servers and kubectl add to an object.
func clean(u *unstructured.Unstructured) {
	for _, field := range []string{"creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"} {
		unstructured.RemoveNestedField(u.Object, "metadata", field)
	}
	annotations := u.GetAnnotations()
	if delete(annotations, corev1.LastAppliedConfigAnnotation); len(annotations) == 0 {
		unstructured.RemoveNestedField(u.Object, "metadata", "annotations")
		return
	}
	u.SetAnnotations(annotations)
}
