package v1_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	policyv1 "github.com/postern-dev/postern/pkg/apis/policy/v1"
)

// fill sets every field that is reached from v to a value that is not zero.
func fill(v reflect.Value, depth int) {
	if depth > 8 {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth+1)
	case reflect.Struct:
		for _, field := range v.Fields() {
			if field.CanSet() {
				fill(field, depth+1)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), depth+1)
		fill(v.Index(1), depth+1)
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64:
		v.SetInt(7)
	default:
		// Metadata has other kinds, which apimachinery copies.
	}
}

// shared returns the paths at which two values have the same pointer, or the same array of a slice.
func shared(a, b reflect.Value, path string) []string {
	var out []string
	switch a.Kind() {
	case reflect.Pointer:
		if a.IsNil() || b.IsNil() {
			return nil
		}
		if a.Pointer() == b.Pointer() {
			out = append(out, path)
		}
		return append(out, shared(a.Elem(), b.Elem(), path)...)
	case reflect.Struct:
		for i := range a.NumField() {
			if a.Type().Field(i).IsExported() {
				out = append(out, shared(a.Field(i), b.Field(i), path+"."+a.Type().Field(i).Name)...)
			}
		}
	case reflect.Slice:
		if a.Len() > 0 && b.Len() > 0 && a.Pointer() == b.Pointer() {
			out = append(out, path)
		}
		for i := range min(a.Len(), b.Len()) {
			out = append(out, shared(a.Index(i), b.Index(i), fmt.Sprintf("%s[%d]", path, i))...)
		}
	default:
		// Other kinds hold no pointer.
	}
	return out
}

func TestDeepCopySharesNothing(t *testing.T) {
	list := &policyv1.PodSecurityPolicyList{}
	fill(reflect.ValueOf(list).Elem(), 0)
	got, ok := list.DeepCopyObject().(*policyv1.PodSecurityPolicyList)
	if !ok {
		t.Fatalf("Got a %T", list.DeepCopyObject())
	}
	if !apiequality.Semantic.DeepEqual(list, got) {
		t.Errorf("The copy differs (- original, + copy):\n%s", cmp.Diff(list, got))
	}
	if common := shared(reflect.ValueOf(list), reflect.ValueOf(got), "list"); len(common) > 0 {
		t.Errorf("The copy shares %q with the original", common)
	}
	if spec := list.Items[0].Spec; spec.RuntimeClass == nil || len(spec.RunAsGroup.Ranges) != 2 || spec.HostPorts[1].Max != 7 {
		t.Errorf("The original has fields without a value: %+v", spec)
	}
}

func TestDeepCopyOfNothing(t *testing.T) {
	if got := (*policyv1.PodSecurityPolicy)(nil).DeepCopy(); got != nil {
		t.Errorf("Got %v for nil", got)
	}
	if got := (&policyv1.PodSecurityPolicy{}).DeepCopy(); !reflect.DeepEqual(got, &policyv1.PodSecurityPolicy{}) {
		t.Errorf("Got %+v for an empty policy", got)
	}
}

func TestAddToScheme(t *testing.T) {
	s := runtime.NewScheme()
	if err := policyv1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	got, err := s.New(policyv1.GroupVersion().WithKind(policyv1.Kind))
	if _, ok := got.(*policyv1.PodSecurityPolicy); err != nil || !ok {
		t.Errorf("Got %T, %v", got, err)
	}
}

// TestSchemaHasTheFieldsOfTheTypes compares the properties in the CustomResourceDefinition with the Go types.
func TestSchemaHasTheFieldsOfTheTypes(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "installer", "crds", "podsecuritypolicies.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var crd struct {
		Metadata struct{ Name string }
		Spec     struct {
			Group    string
			Scope    string
			Names    struct{ Kind, Plural, ListKind string }
			Versions []struct {
				Name   string
				Schema struct{ OpenAPIV3Schema property }
			}
		}
	}
	if err := yaml.Unmarshal(data, &crd); err != nil {
		t.Fatal(err)
	}
	gvr := policyv1.GroupVersionResource()
	if crd.Metadata.Name != gvr.GroupResource().String() || crd.Spec.Group != gvr.Group || crd.Spec.Names.Plural != gvr.Resource ||
		crd.Spec.Names.Kind != policyv1.Kind || crd.Spec.Names.ListKind != policyv1.Kind+"List" || crd.Spec.Scope != "Cluster" ||
		len(crd.Spec.Versions) != 1 || crd.Spec.Versions[0].Name != gvr.Version {
		t.Fatalf("Got a definition of %+v, want %v", crd, gvr)
	}
	spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	for _, problem := range spec.differences(reflect.TypeFor[policyv1.PodSecurityPolicySpec](), "spec") {
		t.Error(problem)
	}
}

// property is a part of an OpenAPI schema.
type property struct {
	Type, Format string
	Properties   map[string]property
	Items        *property
}

func (p property) differences(of reflect.Type, path string) []string {
	var out []string
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	want := map[reflect.Kind]string{
		reflect.Struct: "object", reflect.Slice: "array", reflect.String: "string", reflect.Bool: "boolean", reflect.Int32: "integer", reflect.Int64: "integer",
	}[of.Kind()]
	if p.Type != want {
		return []string{fmt.Sprintf("%s is of type %q, want %q", path, p.Type, want)}
	}
	switch of.Kind() {
	case reflect.Slice:
		return p.Items.differences(of.Elem(), path+"[]")
	case reflect.Int32, reflect.Int64:
		if p.Format != of.Kind().String() {
			out = append(out, fmt.Sprintf("%s has the format %q, want %s", path, p.Format, of.Kind()))
		}
	case reflect.Struct:
		var fields []string
		for field := range of.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			fields = append(fields, name)
			sub, ok := p.Properties[name]
			if !ok {
				out = append(out, fmt.Sprintf("%s.%s is not in the schema", path, name))
				continue
			}
			out = append(out, sub.differences(field.Type, path+"."+name)...)
		}
		for name := range p.Properties {
			if !slices.Contains(fields, name) {
				out = append(out, fmt.Sprintf("%s.%s is not in the Go type", path, name))
			}
		}
	default:
		// Nothing is inside.
	}
	return out
}
