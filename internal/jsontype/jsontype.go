// Package jsontype tells how values of Go types look in JSON, and where in memory their parts are. Packages that decode,
// compare, copy, encode or measure objects use it in place of a reflect.Value for each part, which takes several times as
// long as all else. A pointer that goes with a Type is always to a variable of that type.
package jsontype

import (
	"reflect"
	"sync"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Form says how the values of a type look.
type Form int

// The forms of types.
const (
	Other     Form = iota // Only encoding/json knows: interfaces, floats, arrays, maps with other keys.
	Text                  // A string.
	Bool                  // A boolean.
	Int                   // A signed integer.
	Uint                  // An unsigned integer.
	Pointer               // A pointer.
	Struct                // A struct, by its fields.
	List                  // A slice.
	Texts                 // map[string]string.
	Resources             // corev1.ResourceList.
	Map                   // Another map with keys of a string type.

	// Values of the following forms have no parts in JSON.

	Bytes     // A slice of bytes, which is a string in JSON.
	Extension // runtime.RawExtension.
	Fields    // metav1.FieldsV1.
	Quantity  // resource.Quantity.
	Time      // metav1.Time.
	Either    // intstr.IntOrString.
	Own       // Another type with a method that encodes or decodes it.
)

// Type is what is known of a Go type.
type Type struct {
	Form Form
	Go   reflect.Type
	Size uintptr
	// Elem is the type of the elements of a pointer, slice, array or map.
	Elem *Type
	// Fields are the fields of a struct in the order of their encoding, also those of embedded structs.
	Fields []Field
	// IsExact says that a struct looks as Fields tells. Otherwise it needs the rules of encoding/json on which of several
	// fields with one name counts, or its less common options.
	IsExact bool
	// Short has memory for lists of the type.
	Short Short

	named map[string]int // The indexes of Fields by name.
}

// MaxFields is the number of fields up to which a struct is exact. Types of k8s.io/api have less than fifty.
const MaxFields = 128

// IsLeaf reports whether values of the type have no parts in JSON.
func (t *Type) IsLeaf() bool { return t.Form >= Bytes }

// Slice is the memory of a slice.
type Slice struct {
	First    unsafe.Pointer
	Len, Cap int
}

// New returns a new variable of the type.
func (t *Type) New() unsafe.Pointer {
	switch {
	case t.Form == Text:
		return unsafe.Pointer(new(string))
	case t.Form == Bool:
		return unsafe.Pointer(new(bool))
	case t.Form == Int && t.Size == 8:
		return unsafe.Pointer(new(int64))
	case t.Form == Int && t.Size == 4:
		return unsafe.Pointer(new(int32))
	}
	return reflect.New(t.Go).UnsafePointer()
}

// At returns the variable that a pointer points to.
func (t *Type) At(v unsafe.Pointer) reflect.Value { return reflect.NewAt(t.Go, v).Elem() }

// types memoizes Of, as encoding/json memoizes the fields of its types. It holds no state, because a type never changes,
// and it does not grow without bound, because the types come from the scheme.
var types sync.Map // map[reflect.Type]*Type

// Of returns what is known of a type.
func Of(t reflect.Type) *Type {
	if known, ok := types.Load(t); ok {
		return known.(*Type) // Nothing else is stored.
	}
	b := builder{}
	out := b.of(t)
	for t, made := range b {
		types.LoadOrStore(t, made)
	}
	return out
}

// builder has the types of one call of Of, since a type may contain itself.
type builder map[reflect.Type]*Type

func (b builder) of(t reflect.Type) *Type {
	if known, ok := types.Load(t); ok {
		return known.(*Type) // Nothing else is stored.
	}
	if out, ok := b[t]; ok {
		return out
	}
	out := &Type{Go: t, Form: formOf(t), Size: t.Size()}
	b[t] = out
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		out.Elem = b.of(t.Elem())
	default:
	}
	if out.Form == Struct {
		out.named = map[string]int{}
		out.IsExact = b.addFields(out, t, embedding{}) && len(out.Fields) <= MaxFields
	}
	return out
}

func formOf(t reflect.Type) Form {
	switch t {
	case reflect.TypeFor[runtime.RawExtension]():
		return Extension
	case reflect.TypeFor[metav1.FieldsV1]():
		return Fields
	case reflect.TypeFor[corev1.ResourceList]():
		return Resources
	case reflect.TypeFor[intstr.IntOrString]():
		return Either
	case reflect.TypeFor[metav1.Time]():
		return Time
	case reflect.TypeFor[resource.Quantity]():
		return Quantity
	case reflect.TypeFor[map[string]string]():
		return Texts
	}
	if t.Kind() != reflect.Pointer && t.Kind() != reflect.Interface && hasOwnForm(t) {
		return Own
	}
	switch t.Kind() {
	case reflect.String:
		return Text
	case reflect.Bool:
		return Bool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return Int
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return Uint
	case reflect.Pointer:
		return Pointer
	case reflect.Struct:
		return Struct
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return Bytes
		}
		return List
	case reflect.Map:
		if t.Key().Kind() == reflect.String && !hasOwnForm(t.Key()) {
			return Map
		}
	default:
	}
	return Other
}
