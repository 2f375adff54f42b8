package patch

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"unsafe"

	"github.com/postern-dev/postern/internal/rawjson"
)

// appendJSON appends the JSON of the value of the type that the pointer points to. It leaves values that types define
// the JSON of, and those that are rare in k8s.io/api, to package json.
func (s *shape) appendJSON(out []byte, v unsafe.Pointer) ([]byte, error) {
	if !s.isPlain {
		return appendOther(out, reflect.NewAt(s.typ, v).Interface())
	}
	switch s.form {
	case text:
		return appendText(out, *(*string)(v)), nil
	case pointer:
		elem := *(*unsafe.Pointer)(v)
		if elem == nil {
			return append(out, "null"...), nil
		}
		return s.elem.appendJSON(out, elem)
	case structure:
		return s.appendFields(out, v)
	case slice:
		return s.appendItems(out, (*items)(v))
	default:
	}
	switch s.typ.Kind() {
	case reflect.Bool:
		return strconv.AppendBool(out, *(*bool)(v)), nil
	case reflect.Int32:
		return strconv.AppendInt(out, int64(*(*int32)(v)), 10), nil
	case reflect.Int64:
		return strconv.AppendInt(out, *(*int64)(v), 10), nil
	default:
		return appendOther(out, reflect.NewAt(s.typ, v).Interface())
	}
}

func (s *shape) appendFields(out []byte, v unsafe.Pointer) (_ []byte, err error) {
	separator := byte('{')
	for i := range s.fields {
		f := &s.fields[i]
		at := unsafe.Add(v, f.offset)
		if f.isOmitted(at) {
			continue
		}
		out = append(append(append(out, separator, '"'), f.name...), '"', ':')
		if out, err = f.shape.appendJSON(out, at); err != nil {
			return nil, err
		}
		separator = ','
	}
	if separator == '{' {
		out = append(out, '{')
	}
	return append(out, '}'), nil
}

// isOmitted is omitted for the field that the pointer points to.
func (f *shapedField) isOmitted(v unsafe.Pointer) bool {
	if f.omitZero {
		return f.omitted(reflect.NewAt(f.shape.typ, v).Elem())
	}
	if !f.omitEmpty {
		return false
	}
	switch f.shape.form {
	case text:
		return *(*string)(v) == ""
	case bits8:
		return *(*uint8)(v) == 0
	case bits32:
		return *(*uint32)(v) == 0
	case bits64:
		return *(*uint64)(v) == 0
	case pointer:
		return *(*unsafe.Pointer)(v) == nil
	case structure:
		return false
	case slice:
		return (*items)(v).len == 0
	default:
		return f.omitted(reflect.NewAt(f.shape.typ, v).Elem())
	}
}

func (s *shape) appendItems(out []byte, v *items) (_ []byte, err error) {
	if v.first == nil {
		return append(out, "null"...), nil
	}
	out = append(out, '[')
	for i := range v.len {
		if i > 0 {
			out = append(out, ',')
		}
		if out, err = s.elem.appendJSON(out, unsafe.Add(v.first, uintptr(i)*s.elem.size)); err != nil {
			return nil, err
		}
	}
	return append(out, ']'), nil
}

// appendText appends a string in quotes. Most strings need no escapes.
func appendText(out []byte, s string) []byte {
	if rawjson.Ordinary([]byte(s)) < len(s) || strings.IndexByte(s, '&') >= 0 || strings.IndexByte(s, '<') >= 0 || strings.IndexByte(s, '>') >= 0 {
		quoted, _ := json.Marshal(s) // A string has no error.
		return append(out, quoted...)
	}
	return append(append(append(out, '"'), s...), '"')
}

func appendOther(out []byte, v any) ([]byte, error) {
	data, err := json.Marshal(v)
	return append(out, data...), err
}

// isPlain reports whether package json encodes values of the type by their kind, and a struct by what fieldsOf tells of
// its fields.
func isPlain(t reflect.Type) bool {
	if isLeaf(t) || reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextMarshaler]()) || t == reflect.TypeFor[json.Number]() {
		return false
	}
	if t.Kind() != reflect.Struct {
		return true
	}
	names := map[string]bool{}
	for _, f := range fieldsOf(t).all {
		quoted, err := json.Marshal(f.name)
		if err != nil || len(quoted) != len(f.name)+2 || names[f.name] || f.isQuoted {
			return false
		}
		names[f.name] = true
	}
	for f := range t.Fields() {
		if f.Anonymous && f.Type.Kind() != reflect.Struct {
			return false
		}
	}
	return true
}
