// Package migration turns the manifests of a cluster with kube-apiserver's PodSecurityPolicies into manifests for
// Postern's.
package migration

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

	policyv1 "github.com/postern-dev/postern/pkg/apis/policy/v1"
)

// errNothing is returned for an input in which there is nothing to migrate, such as that of a failed kubectl.
var errNothing = errors.New("nothing to migrate: there is no PodSecurityPolicy of policy/v1beta1 or extensions/v1beta1, " +
	"and no role that allows to use one")

// Run reads YAML or JSON documents and writes YAML documents:
//
//   - PodSecurityPolicies of policy/v1beta1 and extensions/v1beta1 become those of policy.postern.dev/v1.
//   - Roles and ClusterRoles that allow to use policies also allow it in the group policy.postern.dev.
//   - Lists become documents of their own.
//   - All other documents are written as they are.
//
// It drops what an API server adds to the objects that it changes. An unknown field of a policy is an error.
func Run(in io.Reader, out io.Writer) error {
	docs := utilyaml.NewYAMLReader(bufio.NewReader(in))
	var written [][]byte
	migrated := false
	for n := 1; ; n++ {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("reading document %d: %w", n, err)
		}
		parts, changed, err := document(doc)
		if err != nil {
			return fmt.Errorf("document %d: %w", n, err)
		}
		written, migrated = append(written, parts...), migrated || changed
	}
	if !migrated {
		return errNothing
	}
	_, err := out.Write(bytes.Join(written, []byte("---\n")))
	return err
}

// document migrates one document. It returns several documents for a list, and none for one without content.
func document(doc []byte) (out [][]byte, changed bool, err error) {
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
		return list(&u)
	}
	migrated, err := object(&u)
	if err != nil {
		return nil, false, fmt.Errorf("%s %s: %w", u.GetKind(), u.GetName(), err)
	}
	if migrated == nil {
		return [][]byte{append(bytes.TrimRight(doc, "\n"), '\n')}, false, nil
	}
	text, err := yaml.Marshal(migrated)
	return [][]byte{text}, true, err
}

func list(u *unstructured.Unstructured) (out [][]byte, changed bool, err error) {
	err = u.EachListItem(func(item runtime.Object) error {
		text, err := yaml.Marshal(item)
		if err != nil {
			return err
		}
		parts, migrated, err := document(text)
		out, changed = append(out, parts...), changed || migrated
		return err
	})
	return out, changed, err
}

// object returns the migrated object, or nil for an object that stays as it is.
func object(u *unstructured.Unstructured) (any, error) {
	switch gvk := u.GroupVersionKind(); {
	case gvk.Kind == policyv1.Kind && (gvk.GroupVersion() == schema.GroupVersion{Group: "policy", Version: "v1beta1"} ||
		gvk.GroupVersion() == schema.GroupVersion{Group: "extensions", Version: "v1beta1"}):
		return policy(u)
	case gvk.Group == rbacv1.GroupName && (gvk.Kind == "Role" || gvk.Kind == "ClusterRole"):
		return role(u)
	}
	return nil, nil
}

func policy(u *unstructured.Unstructured) (any, error) {
	u.SetAPIVersion(policyv1.GroupVersion().String())
	clean(u)
	data, err := json.Marshal(u.Object)
	if err != nil {
		return nil, err
	}
	p := &policyv1.PodSecurityPolicy{}
	strict, err := kjson.UnmarshalStrict(data, p)
	return p, errors.Join(append(strict, err)...)
}

// role adds our group to the rules with the verb use.
func role(u *unstructured.Unstructured) (any, error) {
	rules, _, err := unstructured.NestedSlice(u.Object, "rules")
	if err != nil {
		return nil, err
	}
	changed := false
	for _, r := range rules {
		rule, ok := r.(map[string]any)
		if !ok || !names(rule, "verbs", "use") || !names(rule, "resources", policyv1.Resource) {
			continue
		}
		groups, _, err := unstructured.NestedStringSlice(rule, "apiGroups")
		if err != nil {
			return nil, err
		}
		if slices.Contains(groups, policyv1.GroupName) || !slices.Contains(groups, "policy") && !slices.Contains(groups, "extensions") {
			continue
		}
		if err := unstructured.SetNestedStringSlice(rule, append(groups, policyv1.GroupName), "apiGroups"); err != nil {
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

// names reports whether a list of a rule has a name or the wildcard.
func names(rule map[string]any, list, name string) bool {
	got, _, err := unstructured.NestedStringSlice(rule, list)
	return err == nil && (slices.Contains(got, name) || slices.Contains(got, rbacv1.ResourceAll))
}

// clean removes what an API server and kubectl add to an object.
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
