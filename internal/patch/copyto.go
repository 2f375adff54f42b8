package patch

import (
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

// isCopyable reports whether copyTo can copy values of the type, which depends on all types in it. seen has the types
// that were visited, since a type may contain itself.
func isCopyable(t *jsontype.Type, seen map[*jsontype.Type]bool) bool {
	if seen[t] {
		return true
	}
	seen[t] = true
	switch t.Form {
	case jsontype.Pointer, jsontype.List:
		return isCopyable(t.Elem, seen)
	case jsontype.Struct:
		return !slices.ContainsFunc(t.Fields, func(f jsontype.Field) bool { return !isCopyable(f.Type, seen) })
	case jsontype.Other, jsontype.Map, jsontype.Bytes, jsontype.Extension:
		return false
	case jsontype.Own:
		return t.Go == reflect.TypeFor[metav1.MicroTime]()
	default:
		return true
	}
}

// copyTo copies the value at from to the value at to. Both have the same copyable type. Slices, maps and variables that
// the value at to has from an earlier copy get the new values, so that few are allocated.
func copyTo(t *jsontype.Type, to, from unsafe.Pointer) {
	switch t.Form {
	case jsontype.Text:
		*(*string)(to) = *(*string)(from)
	case jsontype.Pointer:
		copyPointer(t.Elem, (*unsafe.Pointer)(to), *(*unsafe.Pointer)(from))
	case jsontype.List:
		copyItems(t, (*jsontype.Slice)(to), (*jsontype.Slice)(from))
	case jsontype.Struct:
		for i := range t.Fields {
			f := &t.Fields[i]
			copyTo(f.Type, unsafe.Add(to, f.Offset), unsafe.Add(from, f.Offset))
		}
	case jsontype.Texts:
		texts := (*map[string]string)(to)
		*texts = emptied(*texts, *(*map[string]string)(from))
		maps.Copy(*texts, *(*map[string]string)(from))
	case jsontype.Resources:
		list := (*corev1.ResourceList)(to)
		*list = emptied(*list, *(*corev1.ResourceList)(from))
		for name, quantity := range *(*corev1.ResourceList)(from) {
			(*list)[name] = quantity.DeepCopy()
		}
	case jsontype.Fields:
		copyFields((*metav1.FieldsV1)(to), (*metav1.FieldsV1)(from).GetRawBytes())
	case jsontype.Quantity:
		*(*resource.Quantity)(to) = (*resource.Quantity)(from).DeepCopy()
	case jsontype.Time:
		*(*metav1.Time)(to) = *(*metav1.Time)(from)
	case jsontype.Either:
		*(*intstr.IntOrString)(to) = *(*intstr.IntOrString)(from)
	case jsontype.Own:
		*(*metav1.MicroTime)(to) = *(*metav1.MicroTime)(from)
	default:
		// A boolean or an integer.
		copy(unsafe.Slice((*byte)(to), t.Size), unsafe.Slice((*byte)(from), t.Size))
	}
}

func copyPointer(elem *jsontype.Type, to *unsafe.Pointer, from unsafe.Pointer) {
	if from == nil {
		*to = nil
		return
	}
	if *to == nil {
		*to = elem.New()
	}
	copyTo(elem, *to, from)
}

func copyItems(t *jsontype.Type, to, from *jsontype.Slice) {
	if from.First == nil || to.Cap < from.Len || to.First == nil {
		*to = jsontype.Slice{}
		if from.First == nil {
			return
		}
		made := reflect.MakeSlice(t.Go, from.Len, from.Len)
		to.First, to.Cap = made.UnsafePointer(), from.Len
	}
	to.Len = from.Len
	for i := range from.Len {
		offset := uintptr(i) * t.Elem.Size
		copyTo(t.Elem, unsafe.Add(to.First, offset), unsafe.Add(from.First, offset))
	}
}

// copyFields copies the text of managed fields.
func copyFields(to *metav1.FieldsV1, from []byte) {
	if from == nil {
		to.SetRawBytes(nil)
		return
	}
	to.SetRawBytes(append(to.GetRawBytes()[:0], from...))
}

// emptied returns an empty map for a copy of from: old, unless it is nil. It returns nil if from is nil.
func emptied[M ~map[K]V, K comparable, V any](old, from M) M {
	switch {
	case from == nil:
		return nil
	case old == nil:
		return make(M, len(from))
	}
	clear(old)
	return old
}
