package review

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"

	"github.com/postern-dev/postern/internal/documents"
	"github.com/postern-dev/postern/internal/manifests"
	"github.com/postern-dev/postern/internal/resources"
	"github.com/postern-dev/postern/internal/snapshot"
)

// NewCluster returns the cluster in which objects are reviewed. It has the objects of state, and serves the kinds of both. The state is
// complete for each kind of which it has an object. Notes say which kinds were guessed. The error names each object with
// a mistake.
func NewCluster(objects, state []documents.Object) (c *snapshot.Cluster, notes []string, err error) {
	defined := resources.Definitions{}
	all := slices.Concat(objects, state)
	errs := define(defined, all)
	namespaced, guessed := map[schema.GroupKind]bool{}, map[schema.GroupVersionKind]bool{}
	for _, o := range all {
		if o.GetNamespace() != "" {
			namespaced[o.GroupVersionKind().GroupKind()] = true
		}
	}
	for i, o := range all {
		kind := o.GroupVersionKind()
		if defined.Has(kind) || guessed[kind] || removed(o, i >= len(objects)) != "" {
			continue
		}
		guessed[kind] = true
		scope := "cluster-scoped"
		if namespaced[kind.GroupKind()] {
			scope = "namespaced"
		}
		if scheme.Scheme.IsGroupRegistered(kind.Group) {
			errs = append(errs, wrong(o, fmt.Errorf("there is no such kind in %s", kind.GroupVersion())))
			continue
		}
		plural := defined.Guess(kind, namespaced[kind.GroupKind()])
		notes = append(notes, fmt.Sprintf("%s of %s has no CustomResourceDefinition here: taken for the %s resource %s", kind.Kind, kind.GroupVersion(), scope, plural))
	}
	if len(errs) > 0 {
		return nil, nil, errors.Join(errs...)
	}
	c = snapshot.New(defined)
	for _, o := range state {
		if err := add(c, o); err != nil {
			errs = append(errs, wrong(o, err))
		}
	}
	return c, notes, errors.Join(errs...)
}

// removed says which release of Kubernetes removed the version of an object, or returns "". All kinds of settings.k8s.io are gone, so a
// cluster may serve them with CustomResourceDefinitions: served says that the state or a definition has the kind.
func removed(o documents.Object, served bool) string {
	if served && o.GroupVersionKind().Group == "settings.k8s.io" {
		return ""
	}
	return manifests.Removed(o.Unstructured)
}

// add adds an object of the state.
func add(c *snapshot.Cluster, o documents.Object) error {
	if gone := removed(o, true); gone != "" {
		return errors.New(gone)
	}
	_, namespaced, err := c.Resource(o.GroupVersionKind())
	switch {
	case err != nil:
		return err
	case o.GetName() == "":
		return errors.New("it has no metadata.name")
	case namespaced && o.GetNamespace() == "":
		return errors.New("it has no metadata.namespace")
	}
	raw, err := o.MarshalJSON()
	if err != nil {
		return err
	}
	if _, err := c.Add(o.GroupVersionKind(), raw); err != nil {
		return err
	}
	return c.Complete(o.GroupVersionKind())
}

// define adds the CustomResourceDefinitions. The first one of a name counts: those of the manifests come before those of the state.
func define(defined resources.Definitions, all []documents.Object) (errs []error) {
	seen, parts := map[string]bool{}, resources.Subresources()
	for _, o := range all {
		if sub, ok := parts[o.GroupVersionKind().GroupKind()]; ok {
			errs = append(errs, wrong(o, fmt.Errorf("it is sent to %s of an object, and not reviewed", sub)))
		}
		if o.GetKind() != "CustomResourceDefinition" || seen[o.GetAPIVersion()+o.GetName()] || manifests.Removed(o.Unstructured) != "" {
			continue
		}
		seen[o.GetAPIVersion()+o.GetName()] = true
		raw, err := o.MarshalJSON()
		if err == nil {
			err = defined.Add(raw)
		}
		if err != nil {
			errs = append(errs, wrong(o, err))
		}
	}
	return errs
}

// wrong returns an error about an object.
func wrong(o documents.Object, err error) error {
	return fmt.Errorf("%s: %s: %w", o.Position, printable(o.GetKind()+" "+cache.MetaObjectToName(o).String()), err)
}
