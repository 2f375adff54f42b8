package v1alpha1_test

import (
	"bytes"
	_ "embed"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	settingsv1alpha1 "github.com/postern-dev/postern/pkg/apis/settings/v1alpha1"
)

var update = flag.Bool("update", false, "write the CustomResourceDefinition")

// head is the CustomResourceDefinition up to the schema of the spec.
//
//go:embed testdata/head.yaml
var head string

// TestDefinition compares the CustomResourceDefinition with the schema of the Go types. The types of Volume and of the
// other parts of a pod change with Kubernetes. After an update of k8s.io/api, run the test with -update.
func TestDefinition(t *testing.T) {
	spec := schemaOf(reflect.TypeFor[settingsv1alpha1.PodPresetSpec](), "spec")
	var out bytes.Buffer
	out.WriteString(head)
	write(&out, "            ", map[string]any{"spec": spec})
	file := filepath.Join("..", "..", "..", "..", "installer", "crds", "podpresets.yaml")
	if *update {
		if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, out.Bytes()) {
		t.Errorf("%s is not the schema of the Go types; run this test with -update", file)
	}
	var crd struct {
		Metadata struct{ Name string }
		Spec     struct {
			Group, Scope string
			Names        struct{ Kind, Plural, ListKind string }
			Versions     []struct{ Name string }
		}
	}
	if err := yaml.Unmarshal(got, &crd); err != nil {
		t.Fatal(err)
	}
	gvr := settingsv1alpha1.GroupVersionResource()
	if crd.Metadata.Name != gvr.GroupResource().String() || crd.Spec.Group != gvr.Group || crd.Spec.Names.Plural != gvr.Resource ||
		crd.Spec.Names.Kind != settingsv1alpha1.Kind || crd.Spec.Names.ListKind != settingsv1alpha1.Kind+"List" || crd.Spec.Scope != "Namespaced" ||
		len(crd.Spec.Versions) != 1 || crd.Spec.Versions[0].Name != gvr.Version {
		t.Errorf("Got a definition of %+v, want %v", crd, gvr)
	}
	for path := range constraints() {
		if !visited[path] {
			t.Errorf("There is no field %s for the constraint", path)
		}
	}
}

type schema = map[string]any

const (
	// label is the pattern of label values, and of the name of a label key.
	label = `[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?`
	dns   = `[a-z0-9]([-a-z0-9]*[a-z0-9])?`
)

// constraints returns the validation of a preset that the Go types do not express. Most of it is kube-apiserver's
// validation of settings.k8s.io/v1alpha1. The lengths of lists are bounded in addition.
func constraints() map[string]schema {
	return map[string]schema{
		"spec": {
			"description": "What the preset adds, and to which pods.",
			"x-kubernetes-validations": []any{schema{
				"rule":    "has(self.env) || has(self.envFrom) || has(self.volumes) || has(self.volumeMounts)",
				"message": "must specify at least one of env, envFrom, volumes, volumeMounts",
			}},
		},
		"spec.selector":                  {"description": "Selects pods by their labels. An empty selector selects all pods of the namespace."},
		"spec.selector.matchLabels":      {"maxProperties": 64},
		"spec.selector.matchLabels{}":    {"maxLength": 63, "pattern": "^(" + label + ")?$"},
		"spec.selector.matchExpressions": {"maxItems": 64},
		"spec.selector.matchExpressions[]": {"x-kubernetes-validations": []any{schema{
			"rule":    "self.operator in ['In', 'NotIn'] ? has(self.values) && size(self.values) > 0 : !has(self.values) || size(self.values) == 0",
			"message": "values must be set for the operators In and NotIn, and must not be set for Exists and DoesNotExist",
		}}},
		"spec.selector.matchExpressions[].key":      {"maxLength": 317, "pattern": "^(" + dns + `(\.` + dns + ")*/)?" + label + "$"},
		"spec.selector.matchExpressions[].operator": {"enum": []any{"In", "NotIn", "Exists", "DoesNotExist"}},
		"spec.selector.matchExpressions[].values":   {"maxItems": 256},
		"spec.selector.matchExpressions[].values[]": {"maxLength": 63, "pattern": "^(" + label + ")?$"},
		"spec.env":                      {"description": "Variables that are added to all containers and init containers.", "maxItems": 1024},
		"spec.env[].name":               {"minLength": 1, "maxLength": 1024, "pattern": "^[ -<>-~]+$"},
		"spec.env[]":                    {"x-kubernetes-validations": []any{schema{"rule": "!has(self.value) || self.value == '' || !has(self.valueFrom)", "message": "valueFrom may not be specified when value is not empty"}}},
		"spec.env[].valueFrom":          {"minProperties": 1, "maxProperties": 1},
		"spec.envFrom":                  {"description": "Sources of variables that are added to all containers and init containers.", "maxItems": 256},
		"spec.envFrom[]":                {"x-kubernetes-validations": []any{schema{"rule": "has(self.configMapRef) != has(self.secretRef)", "message": "must specify one of configMapRef and secretRef"}}},
		"spec.volumes":                  {"description": "Volumes that are added to the pod.", "maxItems": 256, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": []any{"name"}},
		"spec.volumes[]":                {"maxProperties": 2},
		"spec.volumes[].name":           {"maxLength": 63, "pattern": "^" + dns + "$"},
		"spec.volumeMounts":             {"description": "Mounts that are added to all containers and init containers.", "maxItems": 256, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": []any{"mountPath"}},
		"spec.volumeMounts[].name":      {"minLength": 1, "maxLength": 63},
		"spec.volumeMounts[].mountPath": {"minLength": 1, "maxLength": 4096},
		"spec.volumeMounts[]": {"x-kubernetes-validations": []any{schema{
			"rule":    "!has(self.subPath) || self.subPath == '' || !has(self.subPathExpr) || self.subPathExpr == ''",
			"message": "subPathExpr and subPath are mutually exclusive",
		}}},
	}
}

var visited = map[string]bool{}

// schemaOf returns the structural schema of a Go type of k8s.io/api. A field without omitempty is required.
func schemaOf(of reflect.Type, path string) schema {
	visited[path] = true
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	out := schema{}
	switch {
	case of == reflect.TypeFor[resource.Quantity]():
		out["anyOf"] = []any{schema{"type": "integer"}, schema{"type": "string"}}
		out["x-kubernetes-int-or-string"] = true
		out["pattern"] = `^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$`
	case of == reflect.TypeFor[metav1.ObjectMeta]():
		// The metadata of a claim's template.
		text := schema{"type": "object", "additionalProperties": schema{"type": "string"}}
		out["type"], out["properties"] = "object", schema{"annotations": text, "labels": text}
	case of.Kind() == reflect.Struct:
		properties, required := fieldsOf(of, path)
		out["type"], out["properties"] = "object", properties
		if len(required) > 0 {
			out["required"] = required
		}
	case of.Kind() == reflect.Slice:
		out["type"], out["items"] = "array", schemaOf(of.Elem(), path+"[]")
	case of.Kind() == reflect.Map:
		out["type"], out["additionalProperties"] = "object", schemaOf(of.Elem(), path+"{}")
	case of.Kind() == reflect.String:
		out["type"] = "string"
	case of.Kind() == reflect.Bool:
		out["type"] = "boolean"
	case of.Kind() == reflect.Int32 || of.Kind() == reflect.Int64:
		out["type"], out["format"] = "integer", of.Kind().String()
	default:
		panic(fmt.Sprintf("%s is a %v", path, of))
	}
	maps.Copy(out, constraints()[path])
	return out
}

func fieldsOf(of reflect.Type, path string) (properties schema, required []any) {
	properties = schema{}
	for field := range of.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" {
			embedded, more := fieldsOf(field.Type, path)
			maps.Copy(properties, embedded)
			required = append(required, more...)
			continue
		}
		properties[name] = schemaOf(field.Type, path+"."+name)
		if !strings.Contains(options, "omit") {
			required = append(required, name)
		}
	}
	return properties, required
}

// write writes a schema as YAML. What has no schema inside is on one line.
func write(out *bytes.Buffer, indent string, s schema) {
	for _, name := range slices.Sorted(maps.Keys(s)) {
		sub, ok := s[name].(schema)
		if !ok || short(sub) {
			fmt.Fprintf(out, "%s%s: %s\n", indent, name, flow(s[name]))
			continue
		}
		fmt.Fprintf(out, "%s%s:\n", indent, name)
		write(out, indent+"  ", sub)
	}
}

func short(s schema) bool {
	for _, v := range s {
		switch v.(type) {
		case schema, []any:
			return false
		}
	}
	return true
}

// flow returns a value in one line of YAML.
func flow(v any) string {
	switch v := v.(type) {
	case schema:
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, name+": "+flow(v[name]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case []any:
		var parts []string
		for _, item := range v {
			parts = append(parts, flow(item))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case string:
		if strings.ContainsAny(v, ":{}[],'\"\\*&!|>%@`#^?") {
			return fmt.Sprintf("%q", v)
		}
		return v
	}
	return fmt.Sprint(v)
}
