package patch

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"unsafe"

	"github.com/postern-dev/postern/internal/jsontype"
	"github.com/postern-dev/postern/internal/rawjson"
)

// appendJSON appends the JSON of the value of the type that the pointer points to. It leaves values that types define
// the JSON of, and those that are rare in k8s.io/api, to package json.
func appendJSON(t *jsontype.Type, out []byte, v unsafe.Pointer) ([]byte, error) {
	switch {
	case t.Form == jsontype.Text:
		return appendText(out, *(*string)(v)), nil
	case t.Form == jsontype.Bool:
		return strconv.AppendBool(out, *(*bool)(v)), nil
	case t.Form == jsontype.Int && t.Size == 4:
		return strconv.AppendInt(out, int64(*(*int32)(v)), 10), nil
	case t.Form == jsontype.Int && t.Size == 8:
		return strconv.AppendInt(out, *(*int64)(v), 10), nil
	case t.Form == jsontype.Pointer && *(*unsafe.Pointer)(v) == nil:
		return append(out, "null"...), nil
	case t.Form == jsontype.Pointer:
		return appendJSON(t.Elem, out, *(*unsafe.Pointer)(v))
	case t.Form == jsontype.Struct && t.IsExact:
		return appendFields(t, out, v)
	case t.Form == jsontype.List:
		return appendItems(t.Elem, out, (*jsontype.Slice)(v))
	}
	data, err := json.Marshal(reflect.NewAt(t.Go, v).Interface())
	return append(out, data...), err
}

func appendFields(t *jsontype.Type, out []byte, v unsafe.Pointer) (_ []byte, err error) {
	separator := byte('{')
	for i := range t.Fields {
		f := &t.Fields[i]
		at := unsafe.Add(v, f.Offset)
		if isOmitted(f, at) {
			continue
		}
		out = append(append(append(out, separator, '"'), f.Name...), '"', ':')
		if out, err = appendJSON(f.Type, out, at); err != nil {
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
func isOmitted(f *jsontype.Field, v unsafe.Pointer) bool {
	switch {
	case f.OmitZero:
		return omitted(f, f.Type.At(v))
	case !f.OmitEmpty:
		return false
	}
	switch f.Type.Form {
	case jsontype.Text:
		return *(*string)(v) == ""
	case jsontype.Bool:
		return !*(*bool)(v)
	case jsontype.Pointer:
		return *(*unsafe.Pointer)(v) == nil
	case jsontype.Struct:
		return false
	case jsontype.List:
		return (*jsontype.Slice)(v).Len == 0
	default:
		return omitted(f, f.Type.At(v))
	}
}

func appendItems(item *jsontype.Type, out []byte, v *jsontype.Slice) (_ []byte, err error) {
	if v.First == nil {
		return append(out, "null"...), nil
	}
	out = append(out, '[')
	for i := range v.Len {
		if i > 0 {
			out = append(out, ',')
		}
		if out, err = appendJSON(item, out, unsafe.Add(v.First, uintptr(i)*item.Size)); err != nil {
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
