package patch

import (
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/postern-dev/postern/internal/rawjson"
)

// field is a field of a struct, as a member of the JSON object that the struct
// encodes to.
type field struct {
	name                string
	token               string // The name in a path, with the slash before it.
	index               []int
	typ                 reflect.Type
	omitEmpty, omitZero bool
	isQuoted            bool // The tag has the option string.
	mergeKey            string
}

// omitted reports whether encoding/json leaves out the field with the value v.
func (f *field) omitted(v reflect.Value) bool {
	if f.omitZero && isZero(v) {
		return true
	}
	if !f.omitEmpty {
		return false
	}
	switch v.Kind() {
	case reflect.Map, reflect.Slice, reflect.Array, reflect.String:
		return v.Len() == 0
	case reflect.Struct:
		return false
	default:
		return v.IsZero()
	}
}

// isZero reports whether omitzero leaves out v. A type may define that itself, and
// metav1.Time defines it for pointers only.
func isZero(v reflect.Value) bool {
	type zeroer interface{ IsZero() bool }
	if v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		z, ok := reflect.TypeAssert[zeroer](v)
		return v.IsNil() || (ok && z.IsZero())
	}
	if !v.CanAddr() {
		box := reflect.New(v.Type()).Elem()
		box.Set(v)
		v = box
	}
	if z, ok := reflect.TypeAssert[zeroer](v.Addr()); ok {
		return z.IsZero()
	}
	return v.IsZero()
}

// keyOf returns the index of the field by which the items of a list differ: the
// merge key of the list, which the field f holds. It returns nil if the list has
// none that is a string or a number.
func (f *field) keyOf(list reflect.Type) []int {
	if f == nil || f.mergeKey == "" || list.Elem().Kind() != reflect.Struct {
		return nil
	}
	key := fieldsOf(list.Elem()).named[f.mergeKey]
	if key == nil || key.typ.Kind() != reflect.String && !key.typ.ConvertibleTo(reflect.TypeFor[int64]()) {
		return nil
	}
	return key.index
}

// fields are the fields of a struct type in the order of their encoding, and by
// their JSON names.
type fields struct {
	all   []field
	named map[string]*field
}

// structFields memoizes fieldsOf, as encoding/json memoizes the fields of its
// types. It holds no state, because the fields of a type never change, and it
// does not grow without bound, because the types come from the scheme.
var structFields sync.Map // map[reflect.Type]*fields

// fieldsOf returns the fields of a struct type.
func fieldsOf(t reflect.Type) *fields {
	if known, ok := structFields.Load(t); ok {
		return known.(*fields) //nolint:forcetypeassert // nothing else is stored
	}
	out := &fields{all: readFields(t, nil), named: map[string]*field{}}
	for i := range out.all {
		out.named[out.all[i].name] = &out.all[i]
	}
	structFields.Store(t, out)
	return out
}

func readFields(t reflect.Type, prefix []int) []field {
	var out []field
	for i := range t.NumField() {
		sf := t.Field(i)
		name, options, _ := strings.Cut(sf.Tag.Get("json"), ",")
		index := append(slices.Clone(prefix), i)
		switch {
		case name == "-" || !sf.IsExported():
		case sf.Anonymous && name == "" && sf.Type.Kind() == reflect.Struct:
			out = append(out, readFields(sf.Type, index)...)
		default:
			opts := strings.Split(options, ",")
			out = append(out, field{
				name: cmp.Or(name, sf.Name), token: "/" + escape(cmp.Or(name, sf.Name)), index: index, typ: sf.Type, mergeKey: sf.Tag.Get("patchMergeKey"),
				omitEmpty: slices.Contains(opts, "omitempty"), omitZero: slices.Contains(opts, "omitzero"),
				isQuoted: slices.Contains(opts, "string"),
			})
		}
	}
	return out
}

// isLeaf reports whether a value of type t is compared as a whole. That is so for
// types with an encoding of their own (quantities, times), whose fields do not
// correspond to their JSON, and for bytes, which are a string in JSON.
func isLeaf(t reflect.Type) bool {
	marshaler := reflect.TypeFor[json.Marshaler]()
	if t.Kind() != reflect.Pointer && t.Kind() != reflect.Interface && (t.Implements(marshaler) || reflect.PointerTo(t).Implements(marshaler)) {
		return true
	}
	return t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8
}

// hasUnknown reports whether raw, the JSON of a value of type t, has a member that
// t does not have.
func hasUnknown(t reflect.Type, raw rawjson.Value) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if isLeaf(t) {
		return false
	}
	switch t.Kind() {
	case reflect.Struct:
		for name, value := range raw.Members() {
			f := fieldsOf(t).named[name.Text()]
			if f == nil || hasUnknown(f.typ, value) {
				return true
			}
		}
	case reflect.Map:
		for _, value := range raw.Members() {
			if hasUnknown(t.Elem(), value) {
				return true
			}
		}
	case reflect.Slice, reflect.Array:
		for value := range raw.Items() {
			if hasUnknown(t.Elem(), value) {
				return true
			}
		}
	default:
	}
	return false
}

// sortedKeys returns the keys of two maps of one type with string keys.
func sortedKeys(b, a reflect.Value) []reflect.Value {
	keys := slices.Concat(b.MapKeys(), a.MapKeys())
	slices.SortFunc(keys, func(x, y reflect.Value) int { return cmp.Compare(x.String(), y.String()) })
	return slices.CompactFunc(keys, func(x, y reflect.Value) bool { return x.String() == y.String() })
}
