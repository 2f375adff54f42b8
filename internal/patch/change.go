package patch

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/postern-dev/postern/internal/jsontype"
)

// change says where two values of one type differ. It saves comparing them once more at each level of nesting. A nil
// change is for values that are the same. A change without parts says only that they may differ.
type change struct{ parts []part }

// part is the change of a field of a struct, by its index in jsontype.Type.Fields, or of an item of two lists of one length.
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
	return compare(jsontype.Of(b.Type()), addressed(b), addressed(a))
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
func compare(t *jsontype.Type, b, a unsafe.Pointer) *change {
	switch t.Form {
	case jsontype.Text:
		return unless(*(*string)(b) == *(*string)(a))
	case jsontype.Bool:
		return unless(*(*bool)(b) == *(*bool)(a))
	case jsontype.Int, jsontype.Uint:
		return unless(sameInteger(t.Size, b, a))
	case jsontype.Pointer:
		b, a := *(*unsafe.Pointer)(b), *(*unsafe.Pointer)(a)
		if b == a {
			return nil
		}
		if b == nil || a == nil {
			return different
		}
		return compare(t.Elem, b, a)
	case jsontype.Struct:
		return compareFields(t, b, a)
	case jsontype.List:
		return compareItems(t.Elem, (*jsontype.Slice)(b), (*jsontype.Slice)(a))
	case jsontype.Texts:
		return unless(maps.Equal(*(*map[string]string)(b), *(*map[string]string)(a)))
	case jsontype.Resources:
		return unless(maps.Equal(*(*corev1.ResourceList)(b), *(*corev1.ResourceList)(a)))
	case jsontype.Fields:
		return unless((*metav1.FieldsV1)(b).Equal(*(*metav1.FieldsV1)(a)))
	case jsontype.Quantity:
		return unless(*(*resource.Quantity)(b) == *(*resource.Quantity)(a))
	case jsontype.Time:
		return unless(*(*metav1.Time)(b) == *(*metav1.Time)(a))
	case jsontype.Either:
		return unless(*(*intstr.IntOrString)(b) == *(*intstr.IntOrString)(a))
	default:
		return unless(identical(t.At(b), t.At(a)))
	}
}

func sameInteger(size uintptr, b, a unsafe.Pointer) bool {
	switch size {
	case 8:
		return *(*uint64)(b) == *(*uint64)(a)
	case 4:
		return *(*uint32)(b) == *(*uint32)(a)
	case 2:
		return *(*uint16)(b) == *(*uint16)(a)
	default:
		return *(*uint8)(b) == *(*uint8)(a)
	}
}

func compareFields(t *jsontype.Type, b, a unsafe.Pointer) *change {
	var parts []part
	for i := range t.Fields {
		f := &t.Fields[i]
		if c := compare(f.Type, unsafe.Add(b, f.Offset), unsafe.Add(a, f.Offset)); c != nil {
			parts = append(parts, part{i, c})
		}
	}
	return changeIn(parts)
}

func compareItems(item *jsontype.Type, b, a *jsontype.Slice) *change {
	if b.Len != a.Len {
		return different
	}
	if b.First == a.First {
		return nil
	}
	var parts []part
	for i := range b.Len {
		offset := uintptr(i) * item.Size
		if c := compare(item, unsafe.Add(b.First, offset), unsafe.Add(a.First, offset)); c != nil {
			parts = append(parts, part{i, c})
		}
	}
	return changeIn(parts)
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
