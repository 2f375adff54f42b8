// Package rawjson reads JSON text and locates values in it without decoding them. Decoding reads every byte several times
// and allocates every value, although callers often need only one member and keep the rest unchanged.
package rawjson

import (
	"bytes"
	"encoding/json"
	"iter"
)

// Value is the text of one JSON value, without surrounding space. The text must be valid: the results for
// invalid text are unspecified.
type Value []byte

// Of returns text as a Value.
func Of(text []byte) Value { return bytes.Trim(text, " \t\r\n") }

// IsNull reports whether the value is empty or null.
func (v Value) IsNull() bool { return len(v) == 0 || v[0] == 'n' }

// IsObject reports whether the value is an object.
func (v Value) IsObject() bool { return len(v) > 1 && v[0] == '{' }

// IsArray reports whether the value is an array.
func (v Value) IsArray() bool { return len(v) > 1 && v[0] == '[' }

// Members returns the names and the values of an object, in order. A name may occur twice; decoders use the
// last one.
func (v Value) Members() iter.Seq2[Value, Value] {
	return func(yield func(name, value Value) bool) {
		r := Reader{Text: v, MaxDepth: MaxDepth}
		if !v.IsObject() || !r.Enter() {
			return
		}
		for first := true; r.More('}', first); first = false {
			name, ok := r.Key()
			value, isValue := r.Value()
			if !ok || !isValue || !yield(name, value) {
				return
			}
		}
	}
}

// Items returns the values of an array, in order.
func (v Value) Items() iter.Seq[Value] {
	return func(yield func(Value) bool) {
		r := Reader{Text: v, MaxDepth: MaxDepth}
		if !v.IsArray() || !r.Enter() {
			return
		}
		for first := true; r.More(']', first); first = false {
			if value, ok := r.Value(); !ok || !yield(value) {
				return
			}
		}
	}
}

// Text returns the decoded string, such as the name of a member.
func (v Value) Text() string {
	for _, c := range v {
		if c == '\\' || c >= 0x80 {
			var s string
			// Valid text can be decoded. For invalid text the result is unspecified.
			_ = json.Unmarshal(v, &s)
			return s
		}
	}
	return string(bytes.Trim(v, `"`))
}

// Is reports whether the value is the string s.
func (v Value) Is(s string) bool {
	if n := len(v) - 1; n == len(s)+1 && string(v[1:n]) == s {
		return !bytes.ContainsRune(v, '\\') || v.Text() == s
	}
	return bytes.ContainsRune(v, '\\') && v.Text() == s
}

// Count returns the number of values: the value itself and all nested values. The names of members do not
// count.
func (v Value) Count() int {
	if len(v) == 0 {
		return 0
	}
	r := Reader{Text: v}
	n := 1
	for r.At < len(v) {
		switch v[r.At] {
		case '"':
			if !r.SkipString() {
				return n
			}
			continue
		case ',':
			n++
		case '{', '[':
			// Count the first value inside, unless there is none.
			r.At++
			if c := r.Next(); c != '}' && c != ']' && c != 0 {
				n++
			}
			continue
		}
		r.At++
	}
	return n
}
