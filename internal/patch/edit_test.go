package patch

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/postern-dev/postern/internal/jsontype"
)

// edit changes known fields of a document. After the edit the origin of each list item is
// still unambiguous.
func (c *chance) edit(t *testing.T, doc any, typ reflect.Type) {
	t.Helper()
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	object, ok := doc.(map[string]any)
	if !ok || jsontype.Of(typ).IsLeaf() {
		return
	}
	if typ.Kind() == reflect.Map {
		for _, key := range sorted(object) {
			c.editMember(t, object, key, &jsontype.Field{Type: jsontype.Of(typ.Elem())})
		}
		return
	}
	if typ.Kind() != reflect.Struct {
		return
	}
	for _, f := range jsontype.Of(typ).Fields {
		if _, exists := object[f.Name]; exists {
			c.editMember(t, object, f.Name, &f)
		}
	}
}

func (c *chance) editMember(t *testing.T, parent map[string]any, key string, f *jsontype.Field) {
	t.Helper()
	// A struct is never absent, so its unknown fields would remain too.
	if c.Intn(20) == 0 && f.Type.Go.Kind() != reflect.Struct {
		delete(parent, key)
		return
	}
	switch value := parent[key].(type) {
	case string:
		if f.Type.Go.Kind() == reflect.String && c.Intn(5) == 0 {
			parent[key] = c.text()
		}
	case bool:
		parent[key] = value != (c.Intn(5) == 0)
	case map[string]any:
		c.edit(t, value, f.Type.Go)
	case []any:
		if f.Type.Go.Kind() == reflect.Slice && !f.Type.IsLeaf() {
			parent[key] = c.editList(t, value, f.Type.Go.Elem(), f.MergeKey)
		}
	}
}

// editList changes, drops and moves items. It changes and adds items without a key only if
// bold is set. It does not change a list in which the origin of an item would be ambiguous.
func (c *chance) editList(t *testing.T, list []any, typ reflect.Type, mergeKey string) []any {
	t.Helper()
	was := map[string]int{} // The index of each item, by its identity.
	for i, item := range list {
		id, ok := identityOf(t, item, typ, mergeKey)
		if _, seen := was[id]; !ok || seen {
			return list
		}
		was[id] = i
	}
	out, ids := make([]any, 0, len(list)+1), map[string]bool{}
	add := func(item any, from int) bool {
		id, ok := identityOf(t, item, typ, mergeKey)
		i, known := was[id]
		if !ok || ids[id] || known && i != from {
			return false
		}
		out, ids[id] = append(out, item), true
		return true
	}
	for _, i := range c.Perm(len(list)) {
		item := runtime.DeepCopyJSONValue(list[i]).(map[string]any)
		if mergeKey != "" || c.bold {
			key, had := item[mergeKey]
			if c.edit(t, item, typ); had {
				item[mergeKey] = key
			}
		}
		if c.Intn(4) != 0 && !add(item, i) {
			return list
		}
	}
	if mergeKey == "" && c.bold && c.Intn(2) == 0 && !add(c.newItem(t, typ), -1) {
		return list
	}
	return out
}

// newItem returns a random item of a list, as a document.
func (c *chance) newItem(t *testing.T, typ reflect.Type) any {
	t.Helper()
	item := reflect.New(typ)
	c.filler.Fill(item.Interface())
	data, err := json.Marshal(item.Interface())
	if err != nil {
		t.Fatal(err)
	}
	return mustParse(t, string(data))
}

// identityOf returns the key of an item, or the encoding of its known fields in a
// list without a key. It returns false for items that are not objects.
func identityOf(t *testing.T, item any, typ reflect.Type, mergeKey string) (string, bool) {
	t.Helper()
	m, ok := item.(map[string]any)
	if mergeKey != "" || !ok {
		return fmt.Sprint(m[mergeKey]), ok
	}
	data, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	known := reflect.New(typ)
	if err := json.Unmarshal(data, known.Interface()); err != nil {
		t.Fatal(err)
	}
	if data, err = json.Marshal(known.Interface()); err != nil {
		t.Fatal(err)
	}
	// A missing list and an empty list are equal.
	return strings.NewReplacer("[]", "null", "{}", "null").Replace(string(data)), true
}
