// Package rawjson finds its way in JSON text without decoding it. Decoding looks
// at every byte several times over and makes a value of everything, where often
// one member is wanted and the rest is to stay as it is.
package rawjson

import (
	"bytes"
	"encoding/json"
	"iter"
)

// Value is the text of one JSON value, with no space around it. The text must be
// valid: of any other it is not said what is found in it.
type Value []byte

// Of returns the value that text is.
func Of(text []byte) Value { return bytes.TrimRight(trim(text), " \t\r\n") }

// IsNull reports whether there is nothing, or null.
func (v Value) IsNull() bool { return len(v) == 0 || v[0] == 'n' }

// IsObject reports whether the value is an object.
func (v Value) IsObject() bool { return len(v) > 1 && v[0] == '{' }

// IsArray reports whether the value is an array.
func (v Value) IsArray() bool { return len(v) > 1 && v[0] == '[' }

// Members are the names and the values of an object, in their order. A name may
// be there twice; decoders take the last.
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

// Items are the values of an array, in their order.
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

// Text returns what a string says, such as the name of a member.
func (v Value) Text() string {
	for _, c := range v {
		if c == '\\' || c >= 0x80 {
			var s string
			// Valid text can be decoded, and of other nothing is said.
			_ = json.Unmarshal(v, &s)
			return s
		}
	}
	return string(bytes.Trim(v, `"`))
}

// inside returns what stands between the brackets of an object or an array.
func (v Value) inside() Value { return trim(v[1 : len(v)-1]) }

// cut returns the first of several values, and what follows after it and the
// comma or colon.
func (v Value) cut() (first, rest Value) {
	end := v.end()
	rest = trim(v[end:])
	if len(rest) > 0 {
		rest = trim(rest[1:])
	}
	return v[:end:end], rest
}

// end returns where the first of several values ends.
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

// endOfBrackets returns where the object or array ends that the text begins with.
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

// endOfString returns where the string ends that the text begins with.
func (v Value) endOfString() int {
	for i := 1; i < len(v); i++ {
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
