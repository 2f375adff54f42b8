package patch

import (
	"cmp"
	"reflect"
	"slices"

	"github.com/postern-dev/postern/internal/jsontype"
	"github.com/postern-dev/postern/internal/rawjson"
)

// omitted reports whether encoding/json leaves out a field with the value v.
func omitted(f *jsontype.Field, v reflect.Value) bool {
	if f.OmitZero && isZero(v) {
		return true
	}
	if !f.OmitEmpty {
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
func keyOf(f *jsontype.Field, list *jsontype.Type) []int {
	if f == nil || f.MergeKey == "" || list.Elem.Form != jsontype.Struct {
		return nil
	}
	key := list.Elem.Named(f.MergeKey)
	if key == nil || key.Type.Form != jsontype.Text && key.Type.Form != jsontype.Int && key.Type.Form != jsontype.Uint {
		return nil
	}
	return key.Index
}

// hasUnknown reports whether raw, the JSON of a value of type t, has a member that
// t does not have.
func hasUnknown(t *jsontype.Type, raw rawjson.Value) bool {
	for t.Form == jsontype.Pointer {
		t = t.Elem
	}
	switch t.Form {
	case jsontype.Struct:
		for name, value := range raw.Members() {
			f := t.Named(name.Text())
			if f == nil || hasUnknown(f.Type, value) {
				return true
			}
		}
	case jsontype.Map:
		for _, value := range raw.Members() {
			if hasUnknown(t.Elem, value) {
				return true
			}
		}
	case jsontype.List:
		for value := range raw.Items() {
			if hasUnknown(t.Elem, value) {
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
