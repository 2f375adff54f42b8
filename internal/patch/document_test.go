package patch

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
)

// thin removes members from a document, or sets them to null, if the typed object stays the
// same.
func (c *chance) thin(t *testing.T, gvk schema.GroupVersionKind, data []byte) []byte {
	t.Helper()
	doc, want := mustParse(t, string(data)), mustDecode(t, gvk, string(data))
	for range 8 {
		parents := objectsIn(doc)
		parent := parents[c.Intn(len(parents))]
		keys := sorted(parent)
		if len(keys) == 0 {
			continue
		}
		key := keys[c.Intn(len(keys))]
		old := parent[key]
		if parent[key] = nil; c.Intn(2) == 0 {
			delete(parent, key)
		}
		thinned, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decode(thinned, gvk); err != nil || !equal(reflect.ValueOf(got), reflect.ValueOf(want)) {
			parent[key] = old
			continue
		}
		data = thinned
	}
	return data
}

// mustParse decodes a document. Integers stay integers.
func mustParse(tb testing.TB, raw string) any {
	tb.Helper()
	var doc any
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(raw), &doc); err != nil {
		tb.Fatalf("Parsing: %v\n%s", err, raw)
	}
	return doc
}

// objectsIn returns all JSON objects of a document, always in the same order.
func objectsIn(doc any) []map[string]any {
	var out []map[string]any
	switch doc := doc.(type) {
	case map[string]any:
		out = append(out, doc)
		for _, k := range sorted(doc) {
			out = append(out, objectsIn(doc[k])...)
		}
	case []any:
		for _, item := range doc {
			out = append(out, objectsIn(item)...)
		}
	}
	return out
}

func sorted(m map[string]any) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
