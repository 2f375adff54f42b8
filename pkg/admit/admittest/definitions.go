package admittest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

var definitionKind = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}

// definition is a CustomResourceDefinition, as far as it says how a kind is served.
type definition struct {
	Spec struct {
		Group string `json:"group"`
		Names struct {
			Kind   string `json:"kind"`
			Plural string `json:"plural"`
		} `json:"names"`
		Scope    string `json:"scope"`
		Versions []struct {
			Name string `json:"name"`
		} `json:"versions"`
	} `json:"spec"`
}

func (d *definition) namespaced() bool { return d.Spec.Scope == "Namespaced" }

func (d *definition) check() error {
	s := d.Spec
	if s.Group == "" || s.Names.Kind == "" || s.Names.Plural == "" || len(s.Versions) == 0 {
		return errors.New("a CustomResourceDefinition has spec.group, spec.names.kind, spec.names.plural and spec.versions")
	}
	for _, v := range s.Versions {
		if v.Name == "" {
			return errors.New("a version of spec.versions has no name")
		}
	}
	if s.Scope != "Cluster" && s.Scope != "Namespaced" {
		return fmt.Errorf("spec.scope %q is neither Cluster nor Namespaced", s.Scope)
	}
	return nil
}

// definitions are the CustomResourceDefinitions of a case by the kind that they define.
type definitions map[schema.GroupKind]*definition

// definitions returns the CustomResourceDefinitions in the cluster of the case.
func (c *Case) definitions() (definitions, error) {
	out := definitions{}
	for i, raw := range c.Cluster {
		var h head
		if err := json.Unmarshal(raw, &h); err != nil {
			return nil, fmt.Errorf("cluster[%d]: %w", i, err)
		}
		if h.GroupVersionKind().GroupKind() != definitionKind {
			continue
		}
		d := &definition{}
		if err := json.Unmarshal(raw, d); err != nil {
			return nil, fmt.Errorf("cluster[%d]: %w", i, err)
		}
		if err := d.check(); err != nil {
			return nil, fmt.Errorf("cluster[%d]: %w", i, err)
		}
		out[schema.GroupKind{Group: d.Spec.Group, Kind: d.Spec.Names.Kind}] = d
	}
	return out, nil
}

// namespaced reports whether a kind is known to be namespaced.
func (d definitions) namespaced(kind schema.GroupKind) bool {
	if defined := d[kind]; defined != nil {
		return defined.namespaced()
	}
	return namespaced(kind)
}

// mapper returns a mapper for the kinds of k8s.io/api, for the defined kinds, and for those of the other objects of the
// cluster: their resource is guessed from the kind, and they are namespaced if the first of them is in a namespace.
func (d definitions) mapper(cluster []object) meta.RESTMapper {
	custom := map[schema.GroupVersionKind]meta.RESTMapping{}
	for kind, defined := range d {
		for _, v := range defined.Spec.Versions {
			gv := schema.GroupVersion{Group: kind.Group, Version: v.Name}
			custom[gv.WithKind(kind.Kind)] = meta.RESTMapping{Resource: gv.WithResource(defined.Spec.Names.Plural), Scope: scopeOf(defined.namespaced())}
		}
	}
	for _, o := range cluster {
		kind := o.untyped.GroupVersionKind()
		if _, known := custom[kind]; known || d[kind.GroupKind()] != nil || o.typed != nil {
			continue
		}
		resource, _ := meta.UnsafeGuessKindToResource(kind)
		custom[kind] = meta.RESTMapping{Resource: resource, Scope: scopeOf(o.untyped.GetNamespace() != "")}
	}
	// A mapper that is not asked for a version takes the first one of these that the kind has. An API server prefers them in
	// the same order.
	versions := make([]schema.GroupVersion, 0, len(custom))
	for kind := range custom {
		versions = append(versions, kind.GroupVersion())
	}
	slices.SortFunc(versions, func(a, b schema.GroupVersion) int {
		return -version.CompareKubeAwareVersionStrings(a.Version, b.Version)
	})
	m := meta.NewDefaultRESTMapper(versions)
	for kind, to := range custom {
		m.AddSpecific(kind, to.Resource, to.Resource, to.Scope)
	}
	return meta.MultiRESTMapper{m, restMapper()}
}
