package jsontype

import (
	"cmp"
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
)

// Field is a field of a struct as a member of the JSON object.
type Field struct {
	Name   string
	Offset uintptr
	Index  []int // For reflect.Value.FieldByIndex.
	Type   *Type
	// OmitEmpty and OmitZero are options of the tag.
	OmitEmpty, OmitZero bool
	// MergeKey is the member by which the items of a list differ, or "".
	MergeKey string
}

// Find returns the index of the field with a name, or -1. It looks at the field that is expected, and at those after
// it, as fields that are not set are left out.
func (t *Type) Find(name []byte, expected int) int {
	for i := expected; i < min(expected+4, len(t.Fields)); i++ {
		if t.Fields[i].Name == string(name) {
			return i
		}
	}
	if i, ok := t.named[string(name)]; ok {
		return i
	}
	return -1
}

// Named returns the field with a name, or nil. Of two fields with one name it returns the last one.
func (t *Type) Named(name string) *Field {
	if i, ok := t.named[name]; ok {
		return &t.Fields[i]
	}
	return nil
}

// hasOwnForm reports whether a type has a method that encodes or decodes it.
func hasOwnForm(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Marshaler]()) || p.Implements(reflect.TypeFor[json.Unmarshaler]()) ||
		p.Implements(reflect.TypeFor[encoding.TextMarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) ||
		t == reflect.TypeFor[json.Number]()
}

// embedding is where the fields of an embedded struct are.
type embedding struct {
	offset uintptr
	index  []int
}

// addFields adds the fields of a struct and of the structs that it embeds. It returns false if the struct is not exact.
func (b builder) addFields(to *Type, t reflect.Type, in embedding) bool {
	isExact := true
	for i := range t.NumField() {
		sf := t.Field(i)
		tag := sf.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		if tag == "-" || !sf.IsExported() {
			isExact = isExact && (tag == "-" || !sf.Anonymous)
			continue
		}
		at := embedding{in.offset + sf.Offset, append(slices.Clone(in.index), i)}
		if sf.Anonymous && name == "" {
			if sf.Type.Kind() == reflect.Struct {
				isExact = b.addFields(to, sf.Type, at) && formOf(sf.Type) == Struct && isExact
				continue
			}
			isExact = false
		}
		name = cmp.Or(name, sf.Name)
		opts := strings.Split(options, ",")
		_, twice := to.named[name]
		isExact = isExact && !twice && isPlain(name) && !slices.Contains(opts, "string")
		to.named[name] = len(to.Fields)
		to.Fields = append(to.Fields, Field{
			Name: name, Offset: at.offset, Index: at.index, Type: b.of(sf.Type), MergeKey: sf.Tag.Get("patchMergeKey"),
			OmitEmpty: slices.Contains(opts, "omitempty"), OmitZero: slices.Contains(opts, "omitzero"),
		})
	}
	return isExact
}

// isPlain reports whether a name has nothing to escape.
func isPlain(name string) bool {
	quoted, err := json.Marshal(name)
	return err == nil && len(quoted) == len(name)+2
}
