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

// Of returns the memory in bytes of a value of type t that is decoded from text. The text must be valid JSON.
// Memory that is needed only during decoding does not count. If t is nil, the value is untyped, such as
// map[string]any.
func Of(text []byte, t reflect.Type) int64 {
	if t == nil {
		t = reflect.TypeFor[any]()
	}
	s := scan{text: text}
	s.value(jsontype.Of(t))
	return s.bytes + sizeOf(t)
}

// scan is one walk through a text. Its methods stop where the text ends, so that text
// that is not valid has some footprint too.
type scan struct {
	text  []byte
	at    int
	bytes int64
}

// value reads one value, and counts what it takes besides its place in its parent. A
// nil type is for a value that is not decoded.
func (s *scan) value(t *jsontype.Type) {
	c := s.next()
	for t != nil && t.Form == jsontype.Pointer {
		if t = t.Elem; c != 'n' {
			s.bytes += sizeOf(t.Go)
		}
	}
	start := s.at
	switch {
	case t == nil:
		s.skip()
	case t.Go.Kind() == reflect.Interface:
		s.untyped(c)
	case t.IsLeaf():
		// The value has its text.
		s.skip()
		s.bytes += int64(s.at - start)
	case c == '{':
		s.object(t)
	case c == '[':
		s.array(t)
	default:
		s.skip()
		if c == '"' {
			s.bytes += int64(s.at - start)
		}
	}
}

// untyped reads a value that is decoded into an interface.
func (s *scan) untyped(c byte) {
	start := s.at
	switch c {
	case '{':
		s.object(jsontype.Of(reflect.TypeFor[map[string]any]()))
	case '[':
		s.bytes += sliceBytes
		s.array(jsontype.Of(reflect.TypeFor[[]any]()))
	case '"':
		s.skip()
		s.bytes += headerBytes + int64(s.at-start)
	default:
		s.skip()
		s.bytes += numberBytes
	}
}

// object reads an object into a struct or a map. Of any other type, which is an
// error when it is decoded, the members are skipped.
func (s *scan) object(t *jsontype.Type) {
	isMap := t.Go.Kind() == reflect.Map
	members := 0
	for s.open(); s.more('}'); {
		name := s.name()
		switch {
		case t.Form == jsontype.Struct:
			s.value(typeOf(t, name))
		case isMap:
			members++
			s.bytes += int64(len(name))
			s.value(t.Elem)
		default:
			s.value(nil)
		}
	}
	if isMap {
		s.bytes += mapBytes + slots(members)*(sizeOf(t.Go.Key())+sizeOf(t.Go.Elem())+1)
	}
}

// typeOf returns the type of the field with a name that is still in quotes, or nil.
func typeOf(t *jsontype.Type, quoted []byte) *jsontype.Type {
	if f := t.Named(rawjson.Value(quoted).Text()); f != nil {
		return f.Type
	}
	return nil
}

func sizeOf(t reflect.Type) int64 {
	return int64(t.Size()) //nolint:gosec // no type is as large as that
}

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
func (s *scan) array(t *jsontype.Type) {
	var item *jsontype.Type
	if t.Form == jsontype.List || t.Go.Kind() == reflect.Array {
		item = t.Elem
	}
	items := 0
	for s.open(); s.more(']'); {
		items++
		s.value(item)
	}
	if t.Form == jsontype.List && items > 0 {
		// The decoder begins with four places.
		s.bytes += int64(max(items, 4)) * sizeOf(item.Go)
	}
}
