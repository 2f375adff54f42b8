package admit

import (
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// jsonField is one member of the JSON object that a struct encodes to.
type jsonField struct {
	name                string
	index               []int
	omitEmpty, omitZero bool
	mergeKey            string
}

// omitted reports whether encoding/json leaves the field out.
func (f jsonField) omitted(v reflect.Value) bool {
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

// isZero reports whether omitzero leaves v out. Its type may have its own idea of
// that, and metav1.Time has it for pointers only.
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

// fieldCache remembers the fields of struct types, and which types keep zeros.
type fieldCache struct{ types, withZeros sync.Map }

func (c *fieldCache) of(t reflect.Type) []jsonField {
	if fields, ok := c.types.Load(t); ok {
		return fields.([]jsonField) //nolint:forcetypeassert // nothing else is stored
	}
	fields := fieldsOf(t, nil)
	c.types.Store(t, fields)
	return fields
}

// named returns the index of the field with a JSON name in a struct type, or nil.
func (c *fieldCache) named(t reflect.Type, name string) []int {
	if name == "" || t.Kind() != reflect.Struct {
		return nil
	}
	fields := c.of(t)
	if i := slices.IndexFunc(fields, func(f jsonField) bool { return f.name == name }); i >= 0 {
		return fields[i].index
	}
	return nil
}

func fieldsOf(t reflect.Type, prefix []int) []jsonField {
	var out []jsonField
	for i := range t.NumField() {
		sf := t.Field(i)
		name, options, _ := strings.Cut(sf.Tag.Get("json"), ",")
		index := append(slices.Clone(prefix), i)
		switch {
		case name == "-" || !sf.IsExported():
		case sf.Anonymous && name == "" && sf.Type.Kind() == reflect.Struct:
			out = append(out, fieldsOf(sf.Type, index)...)
		default:
			opts := strings.Split(options, ",")
			out = append(out, jsonField{
				name: cmp.Or(name, sf.Name), index: index, mergeKey: sf.Tag.Get("patchMergeKey"),
				omitEmpty: slices.Contains(opts, "omitempty"), omitZero: slices.Contains(opts, "omitzero"),
			})
		}
	}
	return out
}

// isLeaf reports whether a type encodes itself, so that its fields say nothing
// about its JSON (quantities, times), or is a list of bytes, a JSON string.
func isLeaf(t reflect.Type) bool {
	marshaler := reflect.TypeFor[json.Marshaler]()
	if t.Kind() != reflect.Pointer && t.Kind() != reflect.Interface && (t.Implements(marshaler) || reflect.PointerTo(t).Implements(marshaler)) {
		return true
	}
	return t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8
}

// sortedKeys returns the keys of two maps of one type with string keys.
func sortedKeys(b, a reflect.Value) []reflect.Value {
	keys := slices.Concat(b.MapKeys(), a.MapKeys())
	slices.SortFunc(keys, func(x, y reflect.Value) int { return cmp.Compare(x.String(), y.String()) })
	return slices.CompactFunc(keys, func(x, y reflect.Value) bool { return x.String() == y.String() })
}
