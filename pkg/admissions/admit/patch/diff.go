// Package patch makes a JSON patch (RFC 6902) of the changes that plugins made to
// an object.
//
// It compares the typed object before and after. Fields that this build does not
// know are not in the typed object, so no operation removes or changes them.
// Where that matters it reads the document that the API server sent, because
// every operation must apply to that document: a field that a typed object always
// has may be absent or null there. Libraries that compare two documents can do
// neither: they do not know which items of two lists belong together, nor the
// third document.
package patch

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/postern-dev/postern/pkg/router/rawjson"
)

// operation is one operation of a patch.
type operation struct {
	op, path string
	value    []byte // JSON, or nil.
}

// encode returns the JSON of a patch. json.Marshal would check and copy each value once more.
func encode(ops []operation) ([]byte, error) {
	size := 2
	for _, o := range ops {
		size += len(`{"op":"replace","path":"","value":},`) + len(o.path) + len(o.value)
	}
	out := append(make([]byte, 0, size), '[')
	for i, o := range ops {
		if i > 0 {
			out = append(out, ',')
		}
		path, err := json.Marshal(o.path)
		if err != nil {
			return nil, fmt.Errorf("encoding the path %q: %w", o.path, err)
		}
		out = append(append(append(out, `{"op":"`...), o.op...), `","path":`...)
		out = append(out, path...)
		if o.value != nil {
			out = append(append(out, `,"value":`...), o.value...)
		}
		out = append(out, '}')
	}
	return append(out, ']'), nil
}

// Diff returns the patch that turns raw into the encoding of after, or nil if
// before and after are equal. before must have been decoded from raw. Diff returns
// the error of ctx if that ends before the comparison does.
func Diff(ctx context.Context, before, after runtime.Object, raw []byte) ([]byte, error) {
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
	c := changeOf(b, a)
	if c == nil {
		return nil, nil
	}
	w := walk{check: ctx.Err}
	if err := w.value(place{source: sourceOf(raw), before: b, after: a, change: c}); err != nil || len(w.ops) == 0 {
		return nil, err
	}
	return encode(w.ops)
}

// walk is one comparison.
type walk struct {
	// check returns an error when the caller no longer waits for the patch.
	check func() error
	ops   []operation
}

// emit adds an operation with the JSON of v as its value.
func (w *walk) emit(op, path string, v reflect.Value) error {
	data, err := marshal(v)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", path, err)
	}
	w.ops = append(w.ops, operation{op: op, path: path, value: data})
	return nil
}

// marshal returns the JSON of v. Most values are strings, which need no escapes, and numbers.
func marshal(v reflect.Value) ([]byte, error) {
	if shapeOf(v.Type()).isPlain {
		switch v.Kind() {
		case reflect.Bool:
			return strconv.AppendBool(nil, v.Bool()), nil
		case reflect.Int32, reflect.Int64:
			return strconv.AppendInt(nil, v.Int(), 10), nil
		case reflect.String:
			if s := v.String(); rawjson.Ordinary([]byte(s)) == len(s) && !strings.ContainsAny(s, "<>&") {
				return append(append(append(make([]byte, 0, len(s)+2), '"'), s...), '"'), nil
			}
		default:
		}
	}
	return json.Marshal(boxed(v))
}

// remove adds an operation that removes the value at path.
func (w *walk) remove(path string) {
	w.ops = append(w.ops, operation{op: "remove", path: path})
}

// place is a value before and after the change, at a path of the document.
type place struct {
	path          string
	source        *source
	before, after reflect.Value
	change        *change
	field         *field // The field that holds the value, or nil.
}

// value compares the values at a place that exists in the document.
func (w *walk) value(p place) error {
	if err := w.check(); err != nil {
		return fmt.Errorf("comparing %s: %w", p.path, err)
	}
	b, a := p.before, p.after
	if !shapeOf(a.Type()).leaf {
		switch a.Kind() {
		case reflect.Pointer, reflect.Interface:
			if !b.IsNil() && !a.IsNil() && b.Elem().Type() == a.Elem().Type() {
				p.before, p.after = b.Elem(), a.Elem()
				return w.value(p)
			}
		case reflect.Struct:
			return w.structure(p)
		case reflect.Map:
			if a.Type().Key().Kind() == reflect.String {
				return w.mapping(p)
			}
		case reflect.Slice:
			if a.Len() > 0 {
				return w.list(list{place: p, key: p.field.keyOf(a.Type())})
			}
		default:
		}
	}
	if mayBeEqual(b, a) && equal(b, a) {
		return nil
	}
	return w.emit("replace", p.path, a)
}

func (w *walk) structure(p place) error {
	fields := fieldsOf(p.after.Type()).all
	for _, part := range p.change.parts {
		f := &fields[part.index]
		after := fieldAt(p.after, f.index)
		err := w.member(member{place{
			path: p.path + "/" + escape(f.name), source: p.source.field(f.name),
			before: fieldAt(p.before, f.index), after: after, change: part.change, field: f,
		}, !f.omitted(after)})
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) mapping(p place) error {
	for _, k := range sortedKeys(p.before, p.after) {
		name := k.String()
		m := member{place: place{path: p.path + "/" + escape(name), source: p.source.entry(name), before: p.before.MapIndex(k), after: p.after.MapIndex(k)}}
		m.encoded = m.after.IsValid()
		if m.before.IsValid() && m.encoded {
			if m.change = changeOf(m.before, m.after); m.change == nil {
				continue
			}
		}
		if err := w.member(m); err != nil {
			return err
		}
	}
	return nil
}

// member is one member of a JSON object: a field of a struct, or an entry of a map, of which before or after may not
// exist.
type member struct {
	place

	encoded bool // The encoding of the object after the change has the member.
}

func (w *walk) member(m member) error {
	if !m.before.IsValid() {
		return w.emit("add", m.path, m.after)
	}
	isSet := !isZeroOrEmpty(m.before)
	if !isSet && m.before.Kind() == reflect.Struct && m.encoded {
		// There may be a struct in the document, with nothing but fields that this build does not know.
		_, isSet = m.source.has(m.before)
	}
	switch both := m.after.IsValid(); {
	case both && m.encoded && isSet:
		return w.value(m.place)
	case both && mayBeEqual(m.before, m.after) && equal(m.before, m.after):
		return nil
	case m.encoded:
		// This replaces a value that is there, such as null or an empty list.
		return w.emit("add", m.path, m.after)
	}
	if exists, _ := m.source.has(m.before); exists {
		w.remove(m.path)
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
