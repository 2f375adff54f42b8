package patch

import (
	"maps"
	"reflect"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// isCopyable reports whether copyTo can copy values of the type, which depends on all types in it. seen has the shapes
// whose types were visited, since a type may contain itself.
func (s *shape) isCopyable(seen map[*shape]bool) bool {
	if seen[s] {
		return true
	}
	seen[s] = true
	switch reflect.Zero(s.typ).Interface().(type) {
	case resource.Quantity, metav1.Time, metav1.MicroTime, metav1.FieldsV1, intstr.IntOrString, map[string]string, corev1.ResourceList:
		return true
	}
	switch s.form {
	case text, bits8, bits16, bits32, bits64:
		return true
	case pointer, slice:
		return !s.leaf && s.elem.isCopyable(seen)
	case structure:
		for _, f := range s.fields {
			if !f.shape.isCopyable(seen) {
				return false
			}
		}
		return !s.leaf
	default:
		return false
	}
}

// copyTo copies the value at from to the value at to. Both have the same copyable type. Slices, maps and variables that
// the value at to has from an earlier copy get the new values, so that few are allocated.
func (s *shape) copyTo(to, from unsafe.Pointer) {
	switch s.form {
	case text:
		*(*string)(to) = *(*string)(from)
	case bits8:
		*(*uint8)(to) = *(*uint8)(from)
	case bits16:
		*(*uint16)(to) = *(*uint16)(from)
	case bits32:
		*(*uint32)(to) = *(*uint32)(from)
	case bits64:
		*(*uint64)(to) = *(*uint64)(from)
	case pointer:
		s.copyPointer((*unsafe.Pointer)(to), *(*unsafe.Pointer)(from))
	case slice:
		s.copyItems((*items)(to), (*items)(from))
	case structure:
		if s.leaf && s.typ != reflect.TypeFor[metav1.FieldsV1]() {
			s.copyLeaf(to, from)
			return
		}
		for i := range s.fields {
			f := &s.fields[i]
			f.shape.copyTo(unsafe.Add(to, f.offset), unsafe.Add(from, f.offset))
		}
	default:
		s.copyMap(to, from)
	}
}

func (s *shape) copyPointer(to *unsafe.Pointer, from unsafe.Pointer) {
	if from == nil {
		*to = nil
		return
	}
	if *to == nil {
		*to = reflect.New(s.elem.typ).UnsafePointer()
	}
	s.elem.copyTo(*to, from)
}

func (s *shape) copyItems(to, from *items) {
	if from.first == nil || to.cap < from.len || to.first == nil {
		*to = items{}
		if from.first == nil {
			return
		}
		made := reflect.MakeSlice(s.typ, from.len, from.len)
		to.first, to.cap = made.UnsafePointer(), from.len
	}
	to.len = from.len
	if s.elem.form == bits8 {
		copy(unsafe.Slice((*byte)(to.first), to.len), unsafe.Slice((*byte)(from.first), from.len))
		return
	}
	for i := range from.len {
		offset := uintptr(i) * s.elem.size
		s.elem.copyTo(unsafe.Add(to.first, offset), unsafe.Add(from.first, offset))
	}
}

// copyLeaf copies a value whose fields are not those of its JSON. Of the types that isCopyable lists, only a Quantity may
// have a pointer to a value that is changed in place.
func (s *shape) copyLeaf(to, from unsafe.Pointer) {
	if s.typ == reflect.TypeFor[resource.Quantity]() {
		*(*resource.Quantity)(to) = (*resource.Quantity)(from).DeepCopy()
		return
	}
	reflect.NewAt(s.typ, to).Elem().Set(reflect.NewAt(s.typ, from).Elem())
}

func (s *shape) copyMap(to, from unsafe.Pointer) {
	if s.typ == reflect.TypeFor[corev1.ResourceList]() {
		to := (*corev1.ResourceList)(to)
		*to = emptied(*to, *(*corev1.ResourceList)(from))
		for name, quantity := range *(*corev1.ResourceList)(from) {
			(*to)[name] = quantity.DeepCopy()
		}
		return
	}
	texts := (*map[string]string)(to)
	*texts = emptied(*texts, *(*map[string]string)(from))
	maps.Copy(*texts, *(*map[string]string)(from))
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
