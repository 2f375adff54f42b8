package admit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
)

// differ makes JSON patches (RFC 6902) of what plugins did to an object.
//
// It compares the typed object before and after, so that fields which this build
// does not know are never touched, and walks the document that the API server
// sent beside them, so that every operation applies to it: a field that the
// typed object always has may be absent or null there. Only what differs in
// meaning is in the patch. Libraries that compare two documents know neither
// which items of two lists are the same one, nor the third document.
type differ struct {
	fields fieldCache
}

// operation is one operation of a patch.
type operation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value,omitempty"`
}

// patch returns the patch that makes after of raw, which before was decoded from;
// nil if nothing changed.
func (d *differ) patch(before, after runtime.Object, raw []byte) ([]byte, error) {
	if apiequality.Semantic.DeepEqual(before, after) {
		return nil, nil
	}
	if before == nil || after == nil {
		return nil, fmt.Errorf("a plugin replaced a %T by a %T", before, after)
	}
	b, a := reflect.ValueOf(before).Elem(), reflect.ValueOf(after).Elem()
	if u, ok := before.(runtime.Unstructured); ok {
		v, ok := after.(runtime.Unstructured)
		if !ok {
			return nil, fmt.Errorf("a plugin replaced a %T by a %T", before, after)
		}
		b, a = reflect.ValueOf(u.UnstructuredContent()), reflect.ValueOf(v.UnstructuredContent())
	}
	if b.Type() != a.Type() {
		return nil, fmt.Errorf("a plugin replaced a %T by a %T", before, after)
	}
	// Numbers stay as they are written: some of this may be sent back.
	var doc any
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if err := decoder.Decode(&doc); err != nil {
		return nil, fmt.Errorf("decoding the object: %w", err)
	}
	w := walk{fields: &d.fields}
	if err := w.value("", b, a, doc, ""); err != nil || len(w.ops) == 0 {
		return nil, err
	}
	return json.Marshal(w.ops)
}

// walk is one comparison.
type walk struct {
	fields *fieldCache
	ops    []operation
}

func equal(b, a reflect.Value) bool {
	return apiequality.Semantic.DeepEqual(b.Interface(), a.Interface())
}

// emit adds an operation with the JSON of v as its value.
func (w *walk) emit(op, path string, v reflect.Value) error {
	if v.CanAddr() {
		v = v.Addr()
	}
	data, err := json.Marshal(v.Interface())
	if err != nil {
		return fmt.Errorf("encoding %s: %w", path, err)
	}
	w.ops = append(w.ops, operation{Op: op, Path: path, Value: data})
	return nil
}

// value compares b and a, which stand at path; raw is what the document has
// there. The path exists. MergeKey is the field by which list items are the same.
func (w *walk) value(path string, b, a reflect.Value, raw any, mergeKey string) error {
	if isLeaf(a.Type()) || raw == nil {
		return w.emit("replace", path, a)
	}
	switch a.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !b.IsNil() && !a.IsNil() && b.Elem().Type() == a.Elem().Type() {
			return w.value(path, b.Elem(), a.Elem(), raw, mergeKey)
		}
	case reflect.Struct:
		if doc, ok := raw.(map[string]any); ok {
			return w.structure(path, b, a, doc)
		}
	case reflect.Map:
		if doc, ok := raw.(map[string]any); ok && a.Type().Key().Kind() == reflect.String {
			return w.mapping(path, b, a, doc)
		}
	case reflect.Slice:
		if doc, ok := raw.([]any); ok && len(doc) == b.Len() && a.Len() > 0 {
			return w.list(path, b, a, doc, mergeKey)
		}
	default:
	}
	return w.emit("replace", path, a)
}

func (w *walk) structure(path string, b, a reflect.Value, doc map[string]any) error {
	for _, f := range w.fields.of(a.Type()) {
		bf, af := b.FieldByIndex(f.index), a.FieldByIndex(f.index)
		if equal(bf, af) {
			continue
		}
		if err := w.member(path, f.name, bf, af, !f.omitted(af), doc, f.mergeKey); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) mapping(path string, b, a reflect.Value, doc map[string]any) error {
	for _, k := range sortedKeys(b, a) {
		bv, av := b.MapIndex(k), a.MapIndex(k)
		if bv.IsValid() && av.IsValid() && equal(bv, av) {
			continue
		}
		if err := w.member(path, k.String(), bv, av, av.IsValid(), doc, ""); err != nil {
			return err
		}
	}
	return nil
}

// member compares one member of a JSON object. Present says whether the encoding
// of the object after the change has it.
func (w *walk) member(path, name string, b, a reflect.Value, present bool, doc map[string]any, mergeKey string) error {
	path += "/" + escape(name)
	raw, exists := doc[name]
	switch {
	case !present && exists:
		w.ops = append(w.ops, operation{Op: "remove", Path: path})
		return nil
	case !present:
		return nil
	case !exists:
		return w.emit("add", path, a)
	case raw == nil || !b.IsValid():
		return w.emit("replace", path, a)
	}
	return w.value(path, b, a, raw, mergeKey)
}

// escape makes a reference token of a JSON pointer (RFC 6901).
func escape(token string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(token)
}

func item(path string, i int) string { return path + "/" + strconv.Itoa(i) }
