package admit

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/postern-dev/postern/pkg/router/rawjson"
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
	if before == nil && after == nil {
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
	w := walk{fields: &d.fields}
	if err := w.value("", b, a, rawjson.Of(raw), ""); err != nil || len(w.ops) == 0 {
		return nil, err
	}
	if err := w.zeros("", a, rawjson.Of(raw)); err != nil {
		return nil, err
	}
	return json.Marshal(w.ops)
}

// walk is one comparison.
type walk struct {
	fields *fieldCache
	ops    []operation
}

// equal reports whether two values mean the same. Both can be addressed, or
// neither can.
func equal(b, a reflect.Value) bool {
	return apiequality.Semantic.DeepEqual(boxed(b), boxed(a))
}

// identical reports whether two values are the same in every bit that counts,
// as most of an object is after a plugin has seen it. That costs a quarter of
// what equality does. What is not identical may still be equal.
func identical(b, a reflect.Value) bool {
	switch b.Kind() {
	case reflect.String:
		return b.String() == a.String()
	case reflect.Pointer, reflect.Interface:
		if b.IsNil() && a.IsNil() {
			return true
		}
	case reflect.Slice, reflect.Map:
		if b.Len() == 0 && a.Len() == 0 {
			return true
		}
	default:
	}
	return reflect.DeepEqual(boxed(b), boxed(a))
}

// boxed returns v, or a pointer to it where that saves a copy.
func boxed(v reflect.Value) any {
	if v.CanAddr() {
		v = v.Addr()
	}
	return v.Interface()
}

// emit adds an operation with the JSON of v as its value.
func (w *walk) emit(op, path string, v reflect.Value) error {
	data, err := json.Marshal(boxed(v))
	if err != nil {
		return fmt.Errorf("encoding %s: %w", path, err)
	}
	w.ops = append(w.ops, operation{Op: op, Path: path, Value: data})
	return nil
}

// value compares b and a, which stand at path; raw is what the document has
// there. The path exists. MergeKey is the field by which list items are the same.
func (w *walk) value(path string, b, a reflect.Value, raw rawjson.Value, mergeKey string) error {
	if !isLeaf(a.Type()) {
		switch a.Kind() {
		case reflect.Pointer, reflect.Interface:
			if !b.IsNil() && !a.IsNil() && b.Elem().Type() == a.Elem().Type() {
				return w.value(path, b.Elem(), a.Elem(), raw, mergeKey)
			}
		case reflect.Struct:
			if raw.IsObject() {
				return w.structure(path, b, a, raw)
			}
		case reflect.Map:
			if raw.IsObject() && a.Type().Key().Kind() == reflect.String {
				return w.mapping(path, b, a, raw)
			}
		case reflect.Slice:
			if items := slices.Collect(raw.Items()); raw.IsArray() && len(items) == b.Len() && a.Len() > 0 {
				return w.list(path, b, a, items, mergeKey)
			}
		default:
		}
	}
	if equal(b, a) {
		return nil
	}
	return w.emit("replace", path, a)
}

func (w *walk) structure(path string, b, a reflect.Value, raw rawjson.Value) error {
	var doc map[string]rawjson.Value
	for _, f := range w.fields.of(a.Type()) {
		bf, af := b.FieldByIndex(f.index), a.FieldByIndex(f.index)
		if identical(bf, af) {
			continue
		}
		if doc == nil {
			doc = members(raw)
		}
		if err := w.member(path, f.name, bf, af, !f.omitted(af), doc, f.mergeKey); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) mapping(path string, b, a reflect.Value, raw rawjson.Value) error {
	doc := members(raw)
	for _, k := range sortedKeys(b, a) {
		bv, av := b.MapIndex(k), a.MapIndex(k)
		if bv.IsValid() && av.IsValid() && identical(bv, av) {
			continue
		}
		if err := w.member(path, k.String(), bv, av, av.IsValid(), doc, ""); err != nil {
			return err
		}
	}
	return nil
}

// members indexes an object of the document. Of a name that is there twice the
// last counts, as it does for decoders.
func members(raw rawjson.Value) map[string]rawjson.Value {
	out := map[string]rawjson.Value{}
	for name, value := range raw.Members() {
		out[name.Text()] = value
	}
	return out
}

// member compares one member of a JSON object. Present says whether the encoding
// of the object after the change has it.
func (w *walk) member(path, name string, b, a reflect.Value, present bool, doc map[string]rawjson.Value, mergeKey string) error {
	path += "/" + escape(name)
	raw, exists := doc[name]
	switch both := b.IsValid() && a.IsValid(); {
	case both && present && exists && !raw.IsNull():
		return w.value(path, b, a, raw, mergeKey)
	case both && equal(b, a):
		return nil
	case present && exists:
		return w.emit("replace", path, a)
	case present:
		return w.emit("add", path, a)
	case exists:
		w.ops = append(w.ops, operation{Op: "remove", Path: path})
	}
	return nil
}

// escape makes a reference token of a JSON pointer (RFC 6901).
func escape(token string) string {
	if !strings.ContainsAny(token, "~/") {
		return token
	}
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(token)
}

func item(path string, i int) string { return path + "/" + strconv.Itoa(i) }
