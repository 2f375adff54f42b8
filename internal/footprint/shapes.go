package footprint

import (
	"encoding/json"
	"reflect"
	"strings"
	"sync"
)

// shapes caches properties of types that are needed for each value. The zero value is ready for use.
type shapes struct {
	structs sync.Map // map[reflect.Type]fields
	opaques sync.Map // map[reflect.Type]bool
}

// fields are the types of a struct's fields by their names in JSON.
type fields map[string]reflect.Type

// named returns the type of the field with a name that is still in quotes, or nil.
func (f fields) named(quoted []byte) reflect.Type {
	if len(quoted) < 2 {
		return nil
	}
	name := quoted[1 : len(quoted)-1]
	if t, ok := f[string(name)]; ok {
		return t
	}
	for _, c := range name {
		if c == '\\' {
			var s string
			if json.Unmarshal(quoted, &s) != nil {
				return nil
			}
			return f[s]
		}
	}
	return nil
}

// opaque reports whether values of a type decode themselves. They hold their text.
func (s *shapes) opaque(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Struct:
	case reflect.Slice:
		return t.Elem().Kind() == reflect.Uint8
	default:
		return false
	}
	if known, ok := s.opaques.Load(t); ok {
		return known == true
	}
	opaque := reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
	s.opaques.Store(t, opaque)
	return opaque
}

// fields returns the fields of a struct, and nothing for another type.
func (s *shapes) fields(t reflect.Type) fields {
	if t.Kind() != reflect.Struct {
		return nil
	}
	if known, ok := s.structs.Load(t); ok {
		return known.(fields) //nolint:forcetypeassert // nothing else is stored
	}
	f := fields{}
	f.add(t)
	s.structs.Store(t, f)
	return f
}

// add adds the fields of a struct, and those of the structs that are embedded in it.
func (f fields) add(t reflect.Type) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-" || !field.IsExported():
		case name == "" && field.Anonymous:
			f.add(field.Type)
		case name == "":
			f[field.Name] = field.Type
		default:
			f[name] = field.Type
		}
	}
}
