package patch

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
)

// change says where two values of one type differ. It saves comparing them once more at each level of nesting. A nil
// change is for values that are the same. A change without parts says only that they may differ.
type change struct{ parts []part }

// part is the change of a field of a struct, by its index in fieldsOf, or of an item of two lists of one length.
type part struct {
	index  int
	change *change
}

// at returns the change of the part with an index.
func (c *change) at(index int) *change {
	if i, ok := slices.BinarySearchFunc(c.parts, index, func(p part, index int) int { return cmp.Compare(p.index, index) }); ok {
		return c.parts[i].change
	}
	return nil
}

// different is a change without parts.
var different = &change{}

// changeOf compares two values of one type. Values that differ may still be equal.
func changeOf(b, a reflect.Value) *change {
	return shapeOf(b.Type()).compare(addressed(b), addressed(a))
}

// addressed returns a pointer to the value, or to a copy.
func addressed(v reflect.Value) unsafe.Pointer {
	if !v.CanAddr() {
		box := reflect.New(v.Type()).Elem()
		box.Set(v)
		v = box
	}
	return v.Addr().UnsafePointer()
}

// compare compares the two values of the type that the pointers point to. All fields of all values are compared, which
// takes several times as long with a reflect.Value for each.
func (s *shape) compare(b, a unsafe.Pointer) *change {
	switch s.form {
	case text:
		return unless(*(*string)(b) == *(*string)(a))
	case bits8:
		return unless(*(*uint8)(b) == *(*uint8)(a))
	case bits16:
		return unless(*(*uint16)(b) == *(*uint16)(a))
	case bits32:
		return unless(*(*uint32)(b) == *(*uint32)(a))
	case bits64:
		return unless(*(*uint64)(b) == *(*uint64)(a))
	case pointer:
		b, a := *(*unsafe.Pointer)(b), *(*unsafe.Pointer)(a)
		if b == a {
			return nil
		}
		if b == nil || a == nil {
			return different
		}
		return s.elem.compare(b, a)
	case structure:
		return s.compareFields(b, a)
	case slice:
		return s.compareItems((*items)(b), (*items)(a))
	case mapping:
		return compareMaps(reflect.NewAt(s.typ, b).Elem(), reflect.NewAt(s.typ, a).Elem())
	default:
		return unless(identical(reflect.NewAt(s.typ, b).Elem(), reflect.NewAt(s.typ, a).Elem()))
	}
}

func (s *shape) compareFields(b, a unsafe.Pointer) *change {
	var parts []part
	for i := range s.fields {
		f := &s.fields[i]
		if c := f.shape.compare(unsafe.Add(b, f.offset), unsafe.Add(a, f.offset)); c != nil {
			if s.leaf {
				return different
			}
			parts = append(parts, part{i, c})
		}
	}
	return changeIn(parts)
}

// items is the memory of a slice.
type items struct {
	first    unsafe.Pointer
	len, cap int
}

func (s *shape) compareItems(b, a *items) *change {
	if b.len != a.len {
		return different
	}
	if b.first == a.first {
		return nil
	}
	if s.elem.form == bits8 {
		return unless(unsafe.String((*byte)(b.first), b.len) == unsafe.String((*byte)(a.first), a.len))
	}
	var parts []part
	for i := range b.len {
		offset := uintptr(i) * s.elem.size
		if c := s.elem.compare(unsafe.Add(b.first, offset), unsafe.Add(a.first, offset)); c != nil {
			if s.leaf {
				return different
			}
			parts = append(parts, part{i, c})
		}
	}
	return changeIn(parts)
}

// compareMaps compares two maps. Those that pods have need no reflection.
func compareMaps(b, a reflect.Value) *change {
	if b.Len() == 0 && a.Len() == 0 {
		return nil
	}
	switch x := b.Interface().(type) {
	case map[string]string:
		y, _ := reflect.TypeAssert[map[string]string](a)
		return unless(maps.Equal(x, y))
	case corev1.ResourceList:
		y, _ := reflect.TypeAssert[corev1.ResourceList](a)
		return unless(maps.Equal(x, y))
	default:
		return unless(identical(b, a))
	}
}

// fieldAt is reflect.Value.FieldByIndex, whose check for embedded pointers costs more than it does.
func fieldAt(v reflect.Value, index []int) reflect.Value {
	for _, i := range index {
		v = v.Field(i)
	}
	return v
}

func changeIn(parts []part) *change {
	if len(parts) == 0 {
		return nil
	}
	return &change{parts}
}

func unless(same bool) *change {
	if same {
		return nil
	}
	return different
}
