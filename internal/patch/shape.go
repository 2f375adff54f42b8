package patch

import (
	"reflect"
	"sync"
)

// form says how values of a type are compared.
type form int

const (
	other form = iota // by reflect.DeepEqual
	text
	bits8 // Booleans and integers of a size in bits.
	bits16
	bits32
	bits64
	pointer
	structure
	slice
	mapping
)

// shape is what comparing needs to know of a type.
type shape struct {
	form form
	typ  reflect.Type
	size uintptr
	elem *shape
	// fields are those of fieldsOf, or all fields of a leaf.
	fields []shapedField
	// leaf says that the value is compared as a whole.
	leaf bool
	// isPlain says that appendJSON needs not leave the values to package json.
	isPlain bool
}

// shapedField is a field at an offset in bytes.
type shapedField struct {
	*field // Nil for a field of a leaf.

	offset uintptr
	shape  *shape
}

// shapes memoizes shapeOf, as structFields memoizes fieldsOf.
var shapes sync.Map // map[reflect.Type]*shape

// shapeOf returns the shape of a type.
func shapeOf(t reflect.Type) *shape {
	if known, ok := shapes.Load(t); ok {
		return known.(*shape) //nolint:forcetypeassert // nothing else is stored
	}
	s := shaper{}.shape(t)
	shapes.Store(t, s)
	return s
}

// shaper has the shapes of one call of shapeOf by their types, since a type may contain itself.
type shaper map[reflect.Type]*shape

func (sh shaper) shape(t reflect.Type) *shape {
	if s, ok := sh[t]; ok {
		return s
	}
	s := &shape{typ: t, size: t.Size(), form: formOf(t), leaf: isLeaf(t), isPlain: isPlain(t)}
	sh[t] = s
	switch s.form {
	case pointer, slice:
		s.elem = sh.shape(t.Elem())
	case structure:
		s.fields = sh.fields(t)
	default:
	}
	return s
}

func (sh shaper) fields(t reflect.Type) []shapedField {
	var out []shapedField
	if isLeaf(t) {
		for f := range t.Fields() {
			out = append(out, shapedField{offset: f.Offset, shape: sh.shape(f.Type)})
		}
		return out
	}
	all := fieldsOf(t).all
	for i := range all {
		f := &all[i]
		in, offset := t, uintptr(0)
		for _, i := range f.index {
			offset += in.Field(i).Offset
			in = in.Field(i).Type
		}
		out = append(out, shapedField{f, offset, sh.shape(in)})
	}
	return out
}

func formOf(t reflect.Type) form {
	switch t.Kind() {
	case reflect.String:
		return text
	case reflect.Bool, reflect.Int8, reflect.Uint8:
		return bits8
	case reflect.Int16, reflect.Uint16:
		return bits16
	case reflect.Int32, reflect.Uint32:
		return bits32
	case reflect.Int64, reflect.Uint64:
		return bits64
	case reflect.Int, reflect.Uint, reflect.Uintptr:
		if t.Size() == 8 {
			return bits64
		}
		return bits32
	case reflect.Pointer:
		return pointer
	case reflect.Struct:
		return structure
	case reflect.Slice:
		return slice
	case reflect.Map:
		return mapping
	default:
		return other
	}
}
