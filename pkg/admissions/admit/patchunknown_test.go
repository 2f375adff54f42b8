package admit

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// unknownField is what a newer version of the API might have.
const unknownField = "zzUnknown"

// TestPatchKeepsUnknownFields puts fields that this build does not know into
// random places of random objects, and then edits the document in what it does
// know. The patch of that edit must keep each field that the edited document
// has, where it has it.
func TestPatchKeepsUnknownFields(t *testing.T) {
	kept := 0
	forRandomObjects(t, func(c *chance, gvk schema.GroupVersionKind, raw string) {
		raw = c.inject(t, gvk, raw)
		want := mustParse(t, raw)
		c.edit(want, reflect.TypeOf(mustNew(t, gvk)).Elem())
		edited, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		patch, result := patched(t, gvk, raw, func(obj runtime.Object) {
			after := mustDecode(t, gvk, string(edited))
			reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(after).Elem())
		})
		wanted, got := unknownFields("", want), unknownFields("", mustParse(t, result))
		for path, value := range wanted {
			if !reflect.DeepEqual(got[path], value) {
				t.Errorf("Got %v at %s, want %v\nraw:    %s\nedited: %s\npatch:  %s", got[path], path, value, raw, edited, patch)
			}
		}
		if patch != nil {
			kept += len(wanted)
		}
	})
	if kept < 500 {
		t.Errorf("Only %d fields were looked at", kept)
	}
}

// TestPatchKeepsUnknownFieldsUntouched changes nothing that holds one: then the
// whole document must be as before, but for the edit.
func TestPatchKeepsUnknownFieldsUntouched(t *testing.T) {
	forRandomObjects(t, func(c *chance, gvk schema.GroupVersionKind, raw string) {
		raw = c.inject(t, gvk, raw)
		_, result := patched(t, gvk, raw, func(obj runtime.Object) {
			if m, ok := obj.(interface{ SetAnnotations(map[string]string) }); ok {
				m.SetAnnotations(map[string]string{"a/b": "c"})
			}
		})
		want, got := mustParse(t, raw).(map[string]any), mustParse(t, result).(map[string]any)
		for _, doc := range []map[string]any{want, got} {
			if meta, ok := doc["metadata"].(map[string]any); ok {
				delete(meta, "annotations")
			}
			if meta, ok := doc["metadata"].(map[string]any); !ok || len(meta) == 0 {
				delete(doc, "metadata")
			}
		}
		if diff := cmp.Diff(got, want); diff != "" {
			t.Errorf("More was changed than the annotations (-got +want):\n%s", diff)
		}
	})
}

func mustNew(t *testing.T, gvk schema.GroupVersionKind) runtime.Object {
	t.Helper()
	obj, err := scheme.Scheme.New(gvk)
	if err != nil {
		t.Fatal(err)
	}
	return obj
}

// inject puts unknown fields into some of the objects that are structs to us.
func (c *chance) inject(t *testing.T, gvk schema.GroupVersionKind, raw string) string {
	t.Helper()
	doc, want := mustParse(t, raw), mustDecode(t, gvk, raw)
	for i, parent := range structsIn(doc, reflect.TypeOf(want)) {
		if c.Intn(3) != 0 {
			continue
		}
		parent[unknownField] = "marker " + strconv.Itoa(i)
		if c.Intn(2) == 0 {
			parent[unknownField] = map[string]any{"deep": []any{parent[unknownField], int64(i)}}
		}
	}
	data, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	if got := mustDecode(t, gvk, string(data)); !equal(reflect.ValueOf(got), reflect.ValueOf(want)) {
		t.Fatalf("The fields are not unknown: %s", data)
	}
	return string(data)
}

// structsIn returns the JSON objects of a document that are structs of its type.
func structsIn(doc any, t reflect.Type) []map[string]any {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if isLeaf(t) {
		return nil
	}
	var out []map[string]any
	switch doc := doc.(type) {
	case []any:
		for _, item := range doc {
			out = append(out, structsIn(item, t.Elem())...)
		}
	case map[string]any:
		if t.Kind() == reflect.Map {
			for _, key := range sorted(doc) {
				out = append(out, structsIn(doc[key], t.Elem())...)
			}
			return out
		}
		out = append(out, doc)
		for _, f := range (&fieldCache{}).of(t) {
			out = append(out, structsIn(doc[f.name], t.FieldByIndex(f.index).Type)...)
		}
	}
	return out
}

// unknownFields returns the unknown fields of a document by their paths.
func unknownFields(path string, doc any) map[string]any {
	out := map[string]any{}
	add := func(name string, value any) {
		maps.Copy(out, unknownFields(path+"/"+name, value))
	}
	switch doc := doc.(type) {
	case map[string]any:
		for name, value := range doc {
			if name == unknownField {
				out[path+"/"+name] = value
				continue
			}
			add(name, value)
		}
	case []any:
		for i, value := range doc {
			add(strconv.Itoa(i), value)
		}
	}
	return out
}

// edit changes a document in fields of its type, such that it is clear for each
// item of a list which one it was before.
func (c *chance) edit(doc any, t reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	object, ok := doc.(map[string]any)
	if !ok || isLeaf(t) {
		return
	}
	if t.Kind() == reflect.Map {
		for _, key := range sorted(object) {
			c.editMember(object, key, t.Elem(), "")
		}
		return
	}
	if t.Kind() != reflect.Struct {
		return
	}
	for _, f := range (&fieldCache{}).of(t) {
		if _, exists := object[f.name]; exists {
			c.editMember(object, f.name, t.FieldByIndex(f.index).Type, f.mergeKey)
		}
	}
}

func (c *chance) editMember(parent map[string]any, key string, t reflect.Type, mergeKey string) {
	if c.Intn(20) == 0 {
		delete(parent, key)
		return
	}
	switch value := parent[key].(type) {
	case string:
		if t.Kind() == reflect.String && c.Intn(5) == 0 {
			parent[key] = randomString(c.Rand)
		}
	case bool:
		parent[key] = value != (c.Intn(5) == 0)
	case map[string]any:
		c.edit(value, t)
	case []any:
		if t.Kind() == reflect.Slice && !isLeaf(t) {
			parent[key] = c.editList(value, t.Elem(), mergeKey)
		}
	}
}

// editList changes items, and which there are, where the items have a key. Where
// they have none it does one or the other.
func (c *chance) editList(list []any, t reflect.Type, mergeKey string) []any {
	before := map[string]bool{}
	keyed := mergeKey != ""
	for _, item := range list {
		m, ok := item.(map[string]any)
		id := fmt.Sprint(m[mergeKey])
		if !ok || !keyed {
			copied := map[string]any{}
			for k, v := range m {
				if k != unknownField {
					copied[k] = v
				}
			}
			id = fmt.Sprint(copied)
		}
		if !ok || before[id] {
			return list // Nobody could tell the items apart.
		}
		before[id] = true
	}
	inPlace := c.Intn(2) == 0
	if keyed || inPlace {
		for _, item := range list {
			key, had := item.(map[string]any)[mergeKey]
			c.edit(item, t)
			if had {
				item.(map[string]any)[mergeKey] = key
			}
		}
	}
	if !keyed && inPlace {
		return list
	}
	out := make([]any, 0, len(list))
	for _, i := range c.Perm(len(list)) {
		if c.Intn(4) != 0 {
			out = append(out, list[i])
		}
	}
	return out
}
