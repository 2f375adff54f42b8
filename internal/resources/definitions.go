package resources

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/restmapper"
)

var definitionKind = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}

// definition is a CustomResourceDefinition, as far as it says how a kind is served.
type definition struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec definitionSpec `json:"spec"`
}

type definitionSpec struct {
	Group    string              `json:"group"`
	Names    definitionNames     `json:"names"`
	Scope    string              `json:"scope"`
	Versions []definitionVersion `json:"versions"`
}

type definitionNames struct {
	Kind     string `json:"kind"`
	Plural   string `json:"plural"`
	Singular string `json:"singular"`
}

// definitionVersion is a version, which is served unless Served is false.
type definitionVersion struct {
	Name   string `json:"name"`
	Served *bool  `json:"served"`
}

func (d *definition) kind() schema.GroupKind {
	return schema.GroupKind{Group: d.Spec.Group, Kind: d.Spec.Names.Kind}
}

const namespaceScope, clusterScope = "Namespaced", "Cluster"

func (d *definition) namespaced() bool { return d.Spec.Scope == namespaceScope }

// served returns the versions in which objects are served.
func (d *definition) served() []string {
	var out []string
	for _, v := range d.Spec.Versions {
		if v.Served == nil || *v.Served {
			out = append(out, v.Name)
		}
	}
	return out
}

func (d *definition) check() error {
	s := d.Spec
	switch {
	case d.GroupVersionKind().Version != "v1":
		return errors.New("a CustomResourceDefinition has the apiVersion apiextensions.k8s.io/v1")
	case s.Group == "" || s.Names.Kind == "" || s.Names.Plural == "":
		return errors.New("a CustomResourceDefinition has spec.group, spec.names.kind and spec.names.plural")
	case d.Metadata.Name != s.Names.Plural+"."+s.Group:
		return fmt.Errorf("metadata.name %q is not %s.%s, the plural and the group", d.Metadata.Name, s.Names.Plural, s.Group)
	case scheme.Scheme.IsGroupRegistered(s.Group):
		return fmt.Errorf("spec.group %q is a group of k8s.io/api", s.Group)
	case s.Scope != clusterScope && s.Scope != namespaceScope:
		return fmt.Errorf("spec.scope %q is neither Cluster nor Namespaced", s.Scope)
	case slices.ContainsFunc(s.Versions, func(v definitionVersion) bool { return v.Name == "" }):
		return errors.New("a version of spec.versions has no name")
	case len(d.served()) == 0:
		return errors.New("no version of spec.versions is served")
	}
	return nil
}

// Definitions are the kinds besides those of k8s.io/api.
type Definitions map[schema.GroupKind]*definition

// Add adds the kind of a CustomResourceDefinition, which is JSON. It ignores all other objects.
func (d Definitions) Add(raw []byte) error {
	defined := &definition{}
	if err := json.Unmarshal(raw, &defined.TypeMeta); err != nil {
		return err
	}
	if defined.GroupVersionKind().GroupKind() != definitionKind {
		return nil
	}
	if err := json.Unmarshal(raw, defined); err != nil {
		return err
	}
	if err := defined.check(); err != nil {
		return err
	}
	if d[defined.kind()] != nil {
		return fmt.Errorf("a second CustomResourceDefinition of %s", defined.kind())
	}
	d[defined.kind()] = defined
	return nil
}

// Has reports whether a kind is defined, or one that an API server with Postern has.
func (d Definitions) Has(kind schema.GroupVersionKind) bool {
	return d[kind.GroupKind()] != nil || isServed(kind)
}

// Guess adds a version of a kind without a CustomResourceDefinition, with the plural that its definition would most likely have, and
// returns the plural. It changes nothing for a kind that is known.
func (d Definitions) Guess(kind schema.GroupVersionKind, namespaced bool) (plural string) {
	plural, _ = guess(kind)
	defined := d[kind.GroupKind()]
	if isServed(kind) || defined != nil && slices.Contains(defined.served(), kind.Version) {
		return plural
	}
	if defined == nil {
		defined = &definition{Spec: definitionSpec{Group: kind.Group, Names: definitionNames{Kind: kind.Kind, Plural: plural}, Scope: clusterScope}}
		if namespaced {
			defined.Spec.Scope = namespaceScope
		}
		d[kind.GroupKind()] = defined
	}
	defined.Spec.Versions = append(defined.Spec.Versions, definitionVersion{Name: kind.Version})
	return plural
}

// Check returns an error for a kind or a namespace that an API server with these definitions does not accept.
func (d Definitions) Check(kind schema.GroupVersionKind, namespace string) error {
	defined := d[kind.GroupKind()]
	switch {
	case defined == nil && IsNamespaced(kind.GroupKind()) && namespace == "":
		return errors.New("has no metadata.namespace")
	case defined == nil:
		return nil
	case !slices.Contains(defined.served(), kind.Version):
		return fmt.Errorf("is of the version %s, which its CustomResourceDefinition does not serve", kind.Version)
	case defined.namespaced() && namespace == "":
		return errors.New("has no metadata.namespace")
	case !defined.namespaced() && namespace != "":
		return errors.New("has a metadata.namespace, and its CustomResourceDefinition the scope Cluster")
	}
	return nil
}

// doubtful matches the kinds whose plural client-go guesses wrong: gatewaies, meshs, boxs.
var doubtful = regexp.MustCompile(`(?:[aeiou]y|sh|ch|x|z)$`)

// guess returns the plural that the definition of a kind would most likely have, and whether it is not in doubt.
func guess(kind schema.GroupVersionKind) (plural string, sure bool) {
	lower := strings.ToLower(kind.Kind)
	switch {
	case !doubtful.MatchString(lower):
		guessed, _ := meta.UnsafeGuessKindToResource(kind)
		return guessed.Resource, true
	case strings.HasSuffix(lower, "y"):
		return lower + "s", false
	default:
		return lower + "es", false
	}
}

// Resource returns the resource of a kind. It is guessed if the kind is not defined. With a wrong guess, a plugin would find
// nothing.
func (d Definitions) Resource(kind schema.GroupVersionKind) (string, error) {
	if defined := d[kind.GroupKind()]; defined != nil {
		return defined.Spec.Names.Plural, nil
	}
	plural, sure := guess(kind)
	if !sure {
		return "", fmt.Errorf("the plural of %s cannot be guessed: add its CustomResourceDefinition", kind.Kind)
	}
	return plural, nil
}

// Mapper returns a mapper for the kinds of k8s.io/api and for the defined kinds. As that of an API server's clients, it prefers
// the versions that the API server prefers.
func (d Definitions) Mapper() meta.RESTMapper {
	custom := map[schema.GroupVersionKind]metav1.APIResource{}
	for kind, defined := range d {
		for _, v := range defined.served() {
			custom[kind.WithVersion(v)] = metav1.APIResource{
				Name: defined.Spec.Names.Plural, SingularName: defined.Spec.Names.Singular, Kind: kind.Kind, Namespaced: defined.namespaced(),
			}
		}
	}
	// The mapper prefers a version that comes before another one.
	var groups []*restmapper.APIGroupResources
	for _, kind := range slices.SortedFunc(maps.Keys(custom), func(a, b schema.GroupVersionKind) int {
		return version.CompareKubeAwareVersionStrings(b.Version, a.Version)
	}) {
		groups = append(groups, &restmapper.APIGroupResources{
			Group:              metav1.APIGroup{Name: kind.Group, Versions: []metav1.GroupVersionForDiscovery{{Version: kind.Version}}},
			VersionedResources: map[string][]metav1.APIResource{kind.Version: {custom[kind]}},
		})
	}
	return meta.MultiRESTMapper{restmapper.NewDiscoveryRESTMapper(groups), mapper()}
}

// Versions returns the object in all versions in which an API server serves it. Versions of a kind differ only in their name,
// as with the conversion strategy None.
func (d Definitions) Versions(u *unstructured.Unstructured) []*unstructured.Unstructured {
	gvk := u.GroupVersionKind()
	defined := d[gvk.GroupKind()]
	if defined == nil {
		return []*unstructured.Unstructured{u}
	}
	var out []*unstructured.Unstructured
	for _, v := range defined.served() {
		in := u.DeepCopy()
		in.SetGroupVersionKind(gvk.GroupKind().WithVersion(v))
		out = append(out, in)
	}
	return out
}
