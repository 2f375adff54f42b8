package patch

import (
	"encoding/json"
	"maps"
	"reflect"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/postern-dev/postern/internal/jsontype"
)

// unknownField is the name of a field that does not exist in any type.
const unknownField = "zzUnknown"

// TestDiffKeepsUnknownFields adds unknown fields to random places of random objects, and then
// edits known fields. The patch must keep each unknown field of the edited document in its
// place.
func TestDiffKeepsUnknownFields(t *testing.T) {
	kept := 0
	forRandomObjects(t, func(c *chance, gvk schema.GroupVersionKind, raw string) {
		want, result := c.editedAndPatched(t, gvk, raw)
		wanted, got := unknownFields("", want), unknownFields("", mustParse(t, result))
		for path, value := range wanted {
			if !reflect.DeepEqual(got[path], value) {
				t.Errorf("Got %v at %s, want %v", got[path], path, value)
			}
		}
		kept += len(wanted)
	})
	if kept < 500 {
		t.Errorf("Only %d fields were looked at", kept)
	}
}

// TestDiffNeverMovesUnknownFields also changes, drops, moves and adds items of lists without a
// key at the same time. An unknown field may be lost, but must not appear in a place where the
// edited document does not have it.
func TestDiffNeverMovesUnknownFields(t *testing.T) {
	kept, lost := 0, 0
	forRandomObjects(t, func(c *chance, gvk schema.GroupVersionKind, raw string) {
		c.bold = true
		want, result := c.editedAndPatched(t, gvk, raw)
		wanted, got := unknownFields("", want), unknownFields("", mustParse(t, result))
		for path, value := range got {
			if !reflect.DeepEqual(wanted[path], value) {
				t.Errorf("Got %v at %s, want %v", value, path, wanted[path])
			}
		}
		kept += len(got)
		lost += len(wanted) - len(got)
	})
	if kept < 500 || lost > kept/8 {
		t.Errorf("%d fields were kept, and %d lost", kept, lost)
	}
}

// editedAndPatched adds unknown fields to an object and edits the object. It returns the
// edited document, and the result of the patch for the same edit by a plugin.
func (c *chance) editedAndPatched(t *testing.T, gvk schema.GroupVersionKind, raw string) (want any, result string) {
	t.Helper()
	raw = c.inject(t, gvk, raw)
	want = mustParse(t, raw)
	c.edit(t, want, reflect.TypeOf(mustNew(t, gvk)).Elem())
	edited, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	_, result = patched(t, gvk, raw, func(obj runtime.Object) {
		after := mustDecode(t, gvk, string(edited))
		reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(after).Elem())
	})
	return want, result
}

// TestDiffKeepsUnknownFieldsUntouched changes only annotations, which contain no unknown
// field. The rest of the document must not change.
func TestDiffKeepsUnknownFieldsUntouched(t *testing.T) {
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
		// cmp.Diff can take hours for documents that are nested so deeply.
		if !reflect.DeepEqual(got, want) {
			t.Errorf("More was changed than the annotations: got\n%v\nwant\n%v", got, want)
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

// inject adds unknown fields to some of the JSON objects whose type is a struct.
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

// structsIn returns the JSON objects of a document whose type is a struct.
func structsIn(doc any, t reflect.Type) []map[string]any {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if jsontype.Of(t).IsLeaf() {
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
		for _, f := range jsontype.Of(t).Fields {
			out = append(out, structsIn(doc[f.Name], f.Type.Go)...)
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
