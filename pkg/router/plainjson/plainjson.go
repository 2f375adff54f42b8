// Package plainjson decodes JSON text in the plain form in which API servers write it, in one pass and several times
// as fast as a general decoder.
//
// It has no semantics of its own: whatever it decodes, sigs.k8s.io/json decodes from the same text to the same value,
// and it refuses all other text. Plain text has no duplicate fields, no invalid UTF-8, no surrogate pairs, no escaped
// field names, integers without exponents, and a moderate depth. The caller passes text that is refused, plain or
// not, to sigs.k8s.io/json, which decodes it or has the error. FuzzUnmarshal compares the two.
package plainjson

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"

	kjson "sigs.k8s.io/json"
)

// maxDepth is the depth of nesting up to which text is plain. Objects of built-in kinds have a depth of less than
// twenty.
const maxDepth = 100

// Unmarshal decodes text into the value that v points to, which must be zero. It returns false if the text is not
// plain, is not valid, or does not match the type. The value is then unspecified.
//
// A runtime.RawExtension of the result shares the memory of text. Strings do not, so that a string that is kept does
// not keep the text.
func Unmarshal(text []byte, v any) bool {
	to := reflect.ValueOf(v).Elem()
	d := decoder{reader: reader{in: text}}
	return d.value(planOf(to.Type()), to) && d.next() == 0 && d.at == len(text)
}

// decoder decodes one text.
type decoder struct {
	reader
	strings strings.Builder
}

// value decodes the value that follows. Its methods return false if the text is not plain.
func (d *decoder) value(p *plan, to reflect.Value) bool {
	c := d.next()
	if c == 'n' && p.form != own {
		// A value that is not decoded twice is zero already.
		return d.literal("null")
	}
	switch p.form {
	case text:
		s, ok := d.text(c)
		to.SetString(s)
		return ok
	case boolean:
		to.SetBool(c == 't')
		return c == 't' && d.literal("true") || c == 'f' && d.literal("false")
	case integer:
		n, ok := d.integer()
		to.SetInt(n)
		return ok && to.Int() == n
	case pointer:
		to.Set(reflect.New(p.elem.typ))
		return d.value(p.elem, to.Elem())
	case structure:
		return c == '{' && d.structure(p, to)
	case list:
		return c == '[' && d.list(p, to)
	case texts:
		return c == '{' && d.texts(to)
	case mapping:
		return c == '{' && d.mapping(p, to)
	case raw:
		start := d.at
		ok := d.skip()
		to.Field(p.raw).SetBytes(d.in[start:d.at:d.at])
		return ok
	case own:
		start := d.at
		u, is := reflect.TypeAssert[json.Unmarshaler](to.Addr())
		return is && d.skip() && u.UnmarshalJSON(d.in[start:d.at:d.at]) == nil
	default:
		start := d.at
		return d.skip() && kjson.UnmarshalCaseSensitivePreserveInts(d.in[start:d.at:d.at], to.Addr().Interface()) == nil
	}
}

// structure decodes an object into a struct. The fields of a struct are mostly in the order of the type.
func (d *decoder) structure(p *plan, to reflect.Value) bool {
	if !d.enter() {
		return false
	}
	var seen bitset
	expected := 0
	for first := true; d.more('}', first); first = false {
		name, ok := d.name()
		if !ok {
			return false
		}
		i := p.find(name, expected)
		if i < 0 {
			if d.next(); !d.skip() {
				return false
			}
			continue
		}
		f := &p.fields[i]
		if seen.add(i) || !d.value(f.plan, f.of(to)) {
			return false
		}
		expected = i + 1
	}
	return d.leave('}')
}

// list decodes an array into a slice, whose capacity is at most one and a half times its length, or four.
func (d *decoder) list(p *plan, to reflect.Value) bool {
	if !d.enter() {
		return false
	}
	items := reflect.MakeSlice(p.typ, 0, 0)
	n := 0
	for first := true; d.more(']', first); first = false {
		if n == items.Cap() {
			grown := reflect.MakeSlice(p.typ, n, max(firstItems, n+n/2))
			reflect.Copy(grown, items)
			items = grown
		}
		items = items.Slice(0, n+1)
		if !d.value(p.elem, items.Index(n)) {
			return false
		}
		n++
	}
	to.Set(items)
	return d.leave(']')
}

// firstItems is the capacity of a list that is not empty.
const firstItems = 2

// texts decodes an object into a map[string]string.
func (d *decoder) texts(to reflect.Value) bool {
	if !d.enter() {
		return false
	}
	m := map[string]string{}
	n := 0
	for first := true; d.more('}', first); first = false {
		key, ok := d.key()
		if !ok {
			return false
		}
		var value string
		if c := d.next(); c == 'n' {
			ok = d.literal("null")
		} else {
			value, ok = d.text(c)
		}
		m[key] = value
		if n++; !ok || len(m) != n {
			return false
		}
	}
	*to.Addr().Interface().(*map[string]string) = m //nolint:forcetypeassert // the plan has this form for this type only
	return d.leave('}')
}

// mapping decodes an object into a map with keys of a string type.
func (d *decoder) mapping(p *plan, to reflect.Value) bool {
	if !d.enter() {
		return false
	}
	m := reflect.MakeMap(p.typ)
	n := 0
	for first := true; d.more('}', first); first = false {
		key, ok := d.key()
		if !ok {
			return false
		}
		item := reflect.New(p.elem.typ).Elem()
		if !d.value(p.elem, item) {
			return false
		}
		m.SetMapIndex(reflect.ValueOf(key).Convert(p.typ.Key()), item)
		if n++; m.Len() != n {
			return false
		}
	}
	to.Set(m)
	return d.leave('}')
}

// text decodes a string that begins with c.
func (d *decoder) text(c byte) (string, bool) {
	start := d.at + 1
	if c != '"' || !d.skipString() {
		return "", false
	}
	return d.keep(d.in[start : d.at-1])
}

// key decodes the name of a member of a map and the colon.
func (d *decoder) key() (string, bool) {
	s, ok := d.text(d.next())
	return s, ok && d.colon()
}

// chunkBytes is the size of the memory that short strings share.
const chunkBytes = 4 << 10

// keep returns a copy of a string, whose quoted form is in. Short strings share memory, so that few of them are
// allocated and one that is kept does not keep much.
func (d *decoder) keep(in []byte) (string, bool) {
	if len(in) == 0 {
		return "", true
	}
	if d.strings.Cap()-d.strings.Len() < len(in) {
		d.strings = strings.Builder{}
		d.strings.Grow(max(len(in), min(chunkBytes, len(d.in)-d.at)))
	}
	start := d.strings.Len()
	ok := unquote(&d.strings, in)
	return d.strings.String()[start:], ok
}

// integer decodes an integer without an exponent.
func (d *decoder) integer() (int64, bool) {
	start := d.at
	if !d.skipNumber() {
		return 0, false
	}
	digits := d.in[start:d.at]
	negative := digits[0] == '-'
	if negative {
		digits = digits[1:]
	}
	// The largest int64 has 19 digits, and every number of 19 digits is an uint64.
	if len(digits) > 19 {
		return 0, false
	}
	n := uint64(0)
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	if n > math.MaxInt64 {
		return 0, false
	}
	if negative {
		return -int64(n), true
	}
	return int64(n), true
}
