// Package footprint tells how much memory an object takes once it is decoded. It
// reads the text of the object beside the Go type that the text is decoded into, and
// allocates nothing, so that an object that is too large is never decoded.
package footprint

import (
	"math/bits"
	"reflect"

	"github.com/postern-dev/postern/internal/jsontype"
	"github.com/postern-dev/postern/internal/rawjson"
)

const (
	headerBytes = 16 // of a string or an interface
	sliceBytes  = 24
	numberBytes = 8
	mapBytes    = 48
)

// Of returns the memory in bytes of a value of type t that is decoded from text. The text must be valid JSON, and not deeper
// than an AdmissionReview. Memory that is needed only during decoding does not count. If t is nil, the value is untyped, such
// as map[string]any.
func Of(text []byte, t reflect.Type) int64 {
	if t == nil {
		t = reflect.TypeFor[any]()
	}
	s := scan{Reader: rawjson.Reader{Text: text, MaxDepth: rawjson.ReviewDepth}}
	s.value(jsontype.Of(t))
	return s.bytes + sizeOf(t)
}

// scan is one walk through a text. Its methods return false where the text is not valid.
type scan struct {
	rawjson.Reader

	bytes int64
}

// value reads one value, and counts what it takes besides its place in its parent. A
// nil type is for a value that is not decoded.
func (s *scan) value(t *jsontype.Type) bool {
	c := s.Next()
	for t != nil && t.Form == jsontype.Pointer {
		if t = t.Elem; c != 'n' {
			s.bytes += sizeOf(t.Go)
		}
	}
	switch {
	case t == nil:
		return s.Skip()
	case t.Go.Kind() == reflect.Interface:
		return s.untyped(c)
	case t.IsLeaf():
		return s.text()
	case c == '{':
		return s.object(t)
	case c == '[':
		return s.array(t)
	case c == '"':
		return s.text()
	}
	return s.Skip()
}

// text reads a value that takes as much as its text.
func (s *scan) text() bool {
	start := s.At
	ok := s.Skip()
	s.bytes += int64(s.At - start)
	return ok
}

// untyped reads a value that is decoded into an interface.
func (s *scan) untyped(c byte) bool {
	switch c {
	case '{':
		return s.object(jsontype.Of(reflect.TypeFor[map[string]any]()))
	case '[':
		s.bytes += sliceBytes
		return s.array(jsontype.Of(reflect.TypeFor[[]any]()))
	case '"':
		s.bytes += headerBytes
		return s.text()
	}
	s.bytes += numberBytes
	return s.Skip()
}

// object reads an object into a struct or a map. Of any other type, which is an
// error when it is decoded, the members are skipped.
func (s *scan) object(t *jsontype.Type) bool {
	isMap := t.Go.Kind() == reflect.Map
	members := 0
	ok := s.Enter()
	for ok && s.More('}', members == 0) {
		var name rawjson.Value
		if name, ok = s.Key(); !ok {
			break
		}
		members++
		switch {
		case t.Form == jsontype.Struct:
			ok = s.value(typeOf(t, name))
		case isMap:
			s.bytes += int64(len(name))
			ok = s.value(t.Elem)
		default:
			ok = s.Skip()
		}
	}
	if isMap {
		s.bytes += OfMap(t.Go, members)
	}
	return ok && s.Leave('}')
}

// typeOf returns the type of the field with a name that is still in quotes, or nil.
func typeOf(t *jsontype.Type, quoted rawjson.Value) *jsontype.Type {
	if f := t.Named(quoted.Text()); f != nil {
		return f.Type
	}
	return nil
}

func sizeOf(t reflect.Type) int64 {
	return int64(t.Size()) //nolint:gosec // no type is as large as that
}

// OfMap returns the memory in bytes of a map of type t with n entries, without what the entries point to.
func OfMap(t reflect.Type, n int) int64 {
	return mapBytes + slots(n)*(sizeOf(t.Key())+sizeOf(t.Elem())+1)
}

// OfList returns the memory in bytes of a list of n items of a type, without what the items point to.
func OfList(item reflect.Type, n int) int64 { return int64(n) * sizeOf(item) }

// slots returns how many places for entries a map of n entries has: a power of two,
// eight at least, of which seven eighths are filled at most.
func slots(n int) int64 {
	switch {
	case n == 0:
		return 0
	case n <= 8:
		return 8
	}
	return 1 << bits.Len(uint(n*8/7))
}

// array reads an array into a slice. Its items have places of their own even where
// they are null.
func (s *scan) array(t *jsontype.Type) bool {
	var item *jsontype.Type
	if t.Form == jsontype.List || t.Go.Kind() == reflect.Array {
		item = t.Elem
	}
	items := 0
	ok := s.Enter()
	for ok && s.More(']', items == 0) {
		items++
		ok = s.value(item)
	}
	if t.Form == jsontype.List && items > 0 {
		// The decoder begins with four places.
		s.bytes += int64(max(items, 4)) * sizeOf(item.Go)
	}
	return ok && s.Leave(']')
}
