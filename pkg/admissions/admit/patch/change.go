package patch

import (
	"cmp"
	"maps"
	"reflect"
	"slices"

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

// changeOf compares two values. Values that differ may still be equal.
func changeOf(b, a reflect.Value) *change {
	switch b.Kind() {
	case reflect.String:
		return unless(b.String() == a.String())
	case reflect.Bool:
		return unless(b.Bool() == a.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return unless(b.Int() == a.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return unless(b.Uint() == a.Uint())
	case reflect.Pointer, reflect.Interface:
		if b.Kind() == reflect.Pointer && b.Pointer() == a.Pointer() {
			return nil
		}
		if b.IsNil() || a.IsNil() || b.Elem().Type() != a.Elem().Type() {
			return unless(b.IsNil() && a.IsNil())
		}
		return changeOf(b.Elem(), a.Elem())
	case reflect.Struct:
		return changeOfStruct(b, a)
	case reflect.Slice:
		return changeOfSlice(b, a)
	case reflect.Map:
		if b.Len() == 0 && a.Len() == 0 {
			return nil
		}
		return changeOfMap(b, a)
	default:
	}
	return unless(b.CanInterface() && identical(b, a))
}

// changeOfMap compares two maps. Those that pods have need no reflection.
func changeOfMap(b, a reflect.Value) *change {
	if !b.CanInterface() {
		return &change{}
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

func changeOfStruct(b, a reflect.Value) *change {
	fields := fieldsOf(b.Type())
	if fields.leaf {
		return changeOfLeaf(b, a)
	}
	var parts []part
	for i := range fields.all {
		index := fields.all[i].index
		if c := changeOf(fieldAt(b, index), fieldAt(a, index)); c != nil {
			parts = append(parts, part{i, c})
		}
	}
	return changeIn(parts)
}

// changeOfLeaf compares two structs that are one value in JSON, with the fields that are not exported.
func changeOfLeaf(b, a reflect.Value) *change {
	for i := range b.NumField() {
		if changeOf(b.Field(i), a.Field(i)) != nil {
			return &change{}
		}
	}
	return nil
}

// fieldAt is reflect.Value.FieldByIndex, whose check for embedded pointers costs more than it does.
func fieldAt(v reflect.Value, index []int) reflect.Value {
	for _, i := range index {
		v = v.Field(i)
	}
	return v
}

func changeOfSlice(b, a reflect.Value) *change {
	if b.Len() != a.Len() {
		return &change{}
	}
	if b.Len() > 0 && b.Type().Elem().Kind() == reflect.Uint8 {
		return unless(slices.Equal(b.Bytes(), a.Bytes()))
	}
	var parts []part
	for i := range b.Len() {
		if c := changeOf(b.Index(i), a.Index(i)); c != nil {
			parts = append(parts, part{i, c})
		}
	}
	return changeIn(parts)
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
	return &change{}
}
