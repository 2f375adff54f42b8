// Package rawjson locates values in JSON text without decoding it. Decoding reads every byte several times
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
func Of(text []byte) Value { return bytes.TrimRight(trim(text), " \t\r\n") }

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
		if !v.IsObject() {
			return
		}
		for rest := v.inside(); len(rest) > 0; {
			var name, value Value
			name, rest = rest.cut()
			value, rest = rest.cut()
			if !yield(name, value) {
				return
			}
		}
	}
}

// Items returns the values of an array, in order.
func (v Value) Items() iter.Seq[Value] {
	return func(yield func(Value) bool) {
		if !v.IsArray() {
			return
		}
		for rest := v.inside(); len(rest) > 0; {
			var value Value
			value, rest = rest.cut()
			if !yield(value) {
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

// inside returns the text between the brackets of an object or an array.
func (v Value) inside() Value { return trim(v[1 : len(v)-1]) }

// cut returns the first of several values, and the text after it and its comma or colon.
func (v Value) cut() (first, rest Value) {
	end := v.end()
	rest = trim(v[end:])
	if len(rest) > 0 {
		rest = trim(rest[1:])
	}
	return v[:end:end], rest
}

// end returns the end of the first of several values.
func (v Value) end() int {
	switch {
	case len(v) == 0:
		return 0
	case v[0] == '"':
		return v.endOfString()
	case v[0] == '{' || v[0] == '[':
		return v.endOfBrackets()
	}
	if n := bytes.IndexAny(v, ",: \t\r\n"); n >= 0 {
		return n
	}
	return len(v)
}

// endOfBrackets returns the end of the object or array at the start of the text.
func (v Value) endOfBrackets() int {
	depth := 0
	for i := 0; i < len(v); i++ {
		switch v[i] {
		case '"':
			i += v[i:].endOfString() - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(v)
}

// endOfString returns the end of the string at the start of the text.
func (v Value) endOfString() int {
	for i := 1; i < len(v); i++ {
		i += Ordinary(v[i:])
		if i >= len(v) {
			break
		}
		switch v[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(v)
}

func trim(v Value) Value { return bytes.TrimLeft(v, " \t\r\n") }

// Count returns the number of values: the value itself and all nested values. The names of members do not
// count.
func (v Value) Count() int {
	if len(v) == 0 {
		return 0
	}
	n := 1
	for i := 0; i < len(v); i++ {
		switch v[i] {
		case '"':
			i += v[i:].endOfString() - 1
		case ',':
			n++
		case '{', '[':
			// Count the first value inside, unless there is none.
			if rest := trim(v[i+1:]); len(rest) > 0 && rest[0] != '}' && rest[0] != ']' {
				n++
			}
		}
	}
	return n
}
