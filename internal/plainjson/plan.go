package plainjson

import (
	"cmp"
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/postern-dev/postern/internal/quantities"
)

// form says how values of a type are decoded.
type form int

const (
	other     form = iota // by sigs.k8s.io/json
	own                   // by the UnmarshalJSON of the type
	raw                   // as text: runtime.RawExtension, metav1.FieldsV1
	text                  // a string
	boolean               // a bool
	integer               // a signed integer
	pointer               // a pointer
	structure             // a struct
	list                  // a slice
	texts                 // a map[string]string
	resources             // a corev1.ResourceList
	either                // an intstr.IntOrString
	instant               // a metav1.Time
	mapping               // another map with keys of a string type
)

// plan is what decoding needs to know of a type.
type plan struct {
	form form
	typ  reflect.Type
	size uintptr
	elem *plan
	few  fewItems // of a list
	// fields are the fields of a struct in their order. named has their indexes by their names in JSON.
	fields []field
	named  map[string]int
	// raw is the offset of the field of a struct that takes the text. isExtension says that the struct is a
	// runtime.RawExtension.
	raw         uintptr
	isExtension bool
	// unmarshal calls the UnmarshalJSON of the type.
	unmarshal func(text []byte, to unsafe.Pointer) error
}

// field is a field of a struct, which may be a field of an embedded struct.
type field struct {
	name   string
	offset uintptr
	plan   *plan
}

// find returns the index of the field with a name, or -1. It looks at the field that is expected, and at those after
// it, as fields that are not set are left out.
func (p *plan) find(name []byte, expected int) int {
	for i := expected; i < min(expected+4, len(p.fields)); i++ {
		if p.fields[i].name == string(name) {
			return i
		}
	}
	if i, ok := p.named[string(name)]; ok {
		return i
	}
	return -1
}

// bitset is a set of the indexes of fields, or of depths.
type bitset [maxFields / 64]uint64

// maxFields is the number of fields up to which a struct has a plan. Types of k8s.io/api have less than fifty.
const maxFields = 128

// add adds an index, and returns true if it is in the set already.
func (s *bitset) add(i int) bool {
	bit := uint64(1) << (i % 64)
	had := s[i/64]&bit != 0
	s[i/64] |= bit
	return had
}

func (s *bitset) has(i int) bool { return s[i/64]&(1<<(i%64)) != 0 }

// put adds an index, or removes it.
func (s *bitset) put(i int, in bool) {
	s[i/64] &^= 1 << (i % 64)
	if in {
		s[i/64] |= 1 << (i % 64)
	}
}

// plans memoizes planOf, as encoding/json memoizes the fields of its types. It holds no state, because a type never
// changes, and it does not grow without bound, because the types come from the scheme.
var plans sync.Map // map[reflect.Type]*plan

// planOf returns the plan of a type.
func planOf(t reflect.Type) *plan {
	if known, ok := plans.Load(t); ok {
		return known.(*plan) //nolint:forcetypeassert // nothing else is stored
	}
	p := planner{}.plan(t)
	plans.Store(t, p)
	return p
}

// planner has the plans of one call of planOf by their types, since a type may contain itself.
type planner map[reflect.Type]*plan

func (pl planner) plan(t reflect.Type) *plan {
	if p, ok := pl[t]; ok {
		return p
	}
	p := &plan{typ: t, size: t.Size()}
	pl[t] = p
	switch p.form = formOf(t); p.form {
	case pointer, list, mapping:
		p.elem = pl.plan(t.Elem())
	case structure:
		p.named = map[string]int{}
		if !pl.addFields(p, t, 0) || len(p.fields) > maxFields {
			p.form = other
		}
	case raw:
		f, _ := t.FieldByName("Raw")
		p.raw, p.isExtension = f.Offset, t == reflect.TypeFor[runtime.RawExtension]()
	case own:
		p.unmarshal = unmarshalerOf(t)
	default:
	}
	return p
}

func formOf(t reflect.Type) form {
	switch {
	case t == reflect.TypeFor[runtime.RawExtension](), t == reflect.TypeFor[metav1.FieldsV1]():
		return raw
	case t == reflect.TypeFor[corev1.ResourceList]():
		return resources
	case t == reflect.TypeFor[intstr.IntOrString]():
		return either
	case t == reflect.TypeFor[metav1.Time]():
		return instant
	case t.Name() != "" && reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()):
		return own
	case reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		return other
	case t == reflect.TypeFor[map[string]string]():
		return texts
	}
	switch t.Kind() {
	case reflect.String:
		if t == reflect.TypeFor[json.Number]() {
			return other
		}
		return text
	case reflect.Bool:
		return boolean
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return integer
	case reflect.Pointer:
		return pointer
	case reflect.Struct:
		return structure
	case reflect.Slice:
		if t.Elem().Kind() != reflect.Uint8 {
			return list
		}
	case reflect.Map:
		if t.Key().Kind() == reflect.String && !reflect.PointerTo(t.Key()).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
			return mapping
		}
	default:
	}
	return other
}

// unmarshalerOf returns the UnmarshalJSON of a type. The types that pods have need no reflection.
func unmarshalerOf(t reflect.Type) func([]byte, unsafe.Pointer) error {
	if t == reflect.TypeFor[resource.Quantity]() {
		return func(text []byte, to unsafe.Pointer) error {
			return quantities.Unmarshal(text, (*resource.Quantity)(to))
		}
	}
	return func(text []byte, to unsafe.Pointer) error {
		u, _ := reflect.TypeAssert[json.Unmarshaler](reflect.NewAt(t, to))
		return u.UnmarshalJSON(text)
	}
}

// addFields adds the fields of a struct and of the structs that it embeds. It returns false for a struct that needs the
// rules of encoding/json on which of several fields with one name counts, or its less common options.
func (pl planner) addFields(p *plan, t reflect.Type, offset uintptr) bool {
	for sf := range t.Fields() {
		tag := sf.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		if tag == "-" || !sf.IsExported() && !sf.Anonymous {
			continue
		}
		if sf.Anonymous && name == "" {
			if sf.Type.Kind() != reflect.Struct || !sf.IsExported() || formOf(sf.Type) != structure || !pl.addFields(p, sf.Type, offset+sf.Offset) {
				return false
			}
			continue
		}
		name = cmp.Or(name, sf.Name)
		if _, twice := p.named[name]; twice || !sf.IsExported() || slices.Contains(strings.Split(options, ","), "string") {
			return false
		}
		p.named[name] = len(p.fields)
		p.fields = append(p.fields, field{name: name, offset: offset + sf.Offset, plan: pl.plan(sf.Type)})
	}
	return true
}
