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
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/postern-dev/postern/internal/jsontype"
	"github.com/postern-dev/postern/internal/reuse"
)

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
	buffer := patches.Take()
	w := walk{check: ctx.Err, out: append(*buffer, '[')}
	if err := w.value(place{source: sourceOf(raw), before: b, after: a, change: c}); err != nil || w.operations == 0 {
		return nil, err
	}
	*buffer = append(w.out, ']')
	out := slices.Clone(*buffer)
	patches.Give(buffer)
	return out, nil
}

// patches has the memory of earlier patches. Their callers have copies.
var patches reuse.Buffers

// walk is one comparison.
type walk struct {
	// check returns an error when the caller no longer waits for the patch.
	check func() error
	// out is the JSON of the patch so far, without its end, and operations the number of operations in it.
	out        []byte
	operations int
}

// emit adds an operation with the JSON of v as its value.
func (w *walk) emit(op, path string, v reflect.Value) (err error) {
	w.begin(op, path)
	if w.out, err = appendJSON(jsontype.Of(v.Type()), append(w.out, `,"value":`...), addressed(v)); err != nil {
		return fmt.Errorf("encoding %s: %w", path, err)
	}
	w.out = append(w.out, '}')
	return nil
}

// remove adds an operation that removes the value at path.
func (w *walk) remove(path string) {
	w.begin("remove", path)
	w.out = append(w.out, '}')
}

// begin adds the start of an operation.
func (w *walk) begin(op, path string) {
	if w.operations > 0 {
		w.out = append(w.out, ',')
	}
	w.operations++
	w.out = append(append(append(w.out, `{"op":"`...), op...), `","path":`...)
	w.out = appendText(w.out, path)
}

// place is a value before and after the change, at a path of the document.
type place struct {
	path          string
	source        *source
	before, after reflect.Value
	change        *change
	field         *jsontype.Field // The field that holds the value, or nil.
}

// value compares the values at a place that exists in the document.
func (w *walk) value(p place) error {
	if err := w.check(); err != nil {
		return fmt.Errorf("comparing %s: %w", p.path, err)
	}
	b, a := p.before, p.after
	if !jsontype.Of(a.Type()).IsLeaf() {
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
				return w.list(list{place: p, key: keyOf(p.field, jsontype.Of(a.Type()))})
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
	fields := jsontype.Of(p.after.Type()).Fields
	for _, part := range p.change.parts {
		f := &fields[part.index]
		after := fieldAt(p.after, f.Index)
		err := w.member(member{place{
			path: p.path + "/" + escape(f.Name), source: p.source.field(f.Name),
			before: fieldAt(p.before, f.Index), after: after, change: part.change, field: f,
		}, !omitted(f, after)})
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
