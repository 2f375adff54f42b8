// Package plainjson decodes JSON text in the plain form in which API servers write it, in one pass and several times
// as fast as a general decoder.
//
// It has no semantics of its own: whatever it decodes, sigs.k8s.io/json decodes from the same text to the same value,
// and it refuses all other text. The exception is a quantity with an exponent beyond quantities.MaxExponent, for which
// sigs.k8s.io/json takes up to hours. Plain text has no duplicate fields, no invalid UTF-8, no surrogate pairs, no escaped
// field names, integers without exponents, and a moderate depth. The caller passes text that is refused, plain or
// not, to sigs.k8s.io/json, which decodes it or has the error. FuzzUnmarshal compares the two.
package plainjson

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"time"
	"unsafe"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	kjson "sigs.k8s.io/json"

	"github.com/postern-dev/postern/internal/jsontype"
	"github.com/postern-dev/postern/internal/quantities"
)

// maxDepth is the depth of nesting up to which text is plain. Objects of built-in kinds have a depth of less than
// twenty.
const maxDepth = 100

// Unmarshal decodes text into the value that v points to, which must be zero. It returns false if the text is not
// plain, is not valid, or does not match the type. The value is then unspecified.
//
// The result shares no memory with text.
func Unmarshal(text []byte, v any) bool {
	d := decoder{reader: reader{in: text}}
	return d.all(v)
}

// UnmarshalReview is Unmarshal for an AdmissionReview. The RawExtensions of the review share the memory of text.
// UnmarshalReview decodes a JSON object of such a RawExtension also into the value that objectFor returns for it, which
// becomes its Object and shares no memory with text. objectFor and its result may be nil. A value that Unmarshal would
// refuse is not decoded, and has only its text.
func UnmarshalReview(text []byte, review *admissionv1.AdmissionReview, objectFor func(*runtime.RawExtension) runtime.Object) bool {
	d := decoder{reader: reader{in: text}, isReview: true, objectFor: objectFor}
	return d.all(review)
}

// decoder decodes one text. It writes through pointers to the fields of a value, at the offsets in its
// jsontype.Type.
type decoder struct {
	reader
	strings strings.Builder
	// isReview says that the value is part of a review, and not of an object in it.
	isReview  bool
	objectFor func(*runtime.RawExtension) runtime.Object
}

// all decodes the whole text.
func (d *decoder) all(v any) bool {
	to := reflect.ValueOf(v)
	return d.value(jsontype.Of(to.Type().Elem()), to.UnsafePointer()) && d.next() == 0 && d.at == len(d.in)
}

// value decodes the value that follows. Its methods return false if the text is not plain.
func (d *decoder) value(t *jsontype.Type, to unsafe.Pointer) bool {
	c := d.next()
	if c == 'n' && t.Form != jsontype.Own {
		// A value that is not decoded twice is zero already.
		return d.literal("null")
	}
	switch t.Form {
	case jsontype.Text:
		s, ok := d.text(c)
		*(*string)(to) = s
		return ok
	case jsontype.Bool:
		*(*bool)(to) = c == 't'
		return c == 't' && d.literal("true") || c == 'f' && d.literal("false")
	case jsontype.Int:
		n, ok := d.integer()
		return ok && setInteger(t.Size, to, n)
	case jsontype.Pointer:
		elem := t.Elem.New()
		*(*unsafe.Pointer)(to) = elem
		return d.value(t.Elem, elem)
	case jsontype.Struct:
		if !t.IsExact {
			return d.other(t, to)
		}
		return c == '{' && d.structure(t, to)
	case jsontype.List:
		return c == '[' && d.list(t, to)
	case jsontype.Texts:
		return c == '{' && d.texts((*map[string]string)(to))
	case jsontype.Resources:
		return c == '{' && d.resources((*corev1.ResourceList)(to))
	case jsontype.Map:
		return c == '{' && d.mapping(t, t.At(to))
	case jsontype.Extension:
		extension := (*runtime.RawExtension)(to)
		return c == '{' && d.isReview && d.objectFor != nil && d.object(extension) || d.raw(&extension.Raw)
	case jsontype.Fields:
		var text []byte
		ok := d.raw(&text)
		(*metav1.FieldsV1)(to).SetRawBytes(text)
		return ok
	case jsontype.Quantity:
		return d.quantity((*resource.Quantity)(to))
	case jsontype.Time:
		return d.instant(c, (*metav1.Time)(to))
	case jsontype.Either:
		return d.either(c, (*intstr.IntOrString)(to))
	default:
		return d.other(t, to)
	}
}

// other leaves a value to its type, or to sigs.k8s.io/json.
func (d *decoder) other(t *jsontype.Type, to unsafe.Pointer) bool {
	start := d.at
	if !d.skip() {
		return false
	}
	text, v := d.in[start:d.at:d.at], reflect.NewAt(t.Go, to)
	if u, ok := reflect.TypeAssert[json.Unmarshaler](v); ok && t.Go.Name() != "" {
		return u.UnmarshalJSON(text) == nil
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(text, v.Interface()) == nil
}

// raw reads the text of a value.
func (d *decoder) raw(to *[]byte) bool {
	start := d.at
	ok := d.skip()
	if *to = d.in[start:d.at:d.at]; !d.isReview {
		*to = bytes.Clone(*to)
	}
	return ok
}

// object decodes an object into the value that objectFor has for it. It reads nothing if there is none, or if the
// text is not plain.
func (d *decoder) object(to *runtime.RawExtension) bool {
	before := d.reader
	obj := d.objectFor(to)
	if obj == nil {
		return false
	}
	d.isReview = false
	v := reflect.ValueOf(obj)
	ok := d.value(jsontype.Of(v.Type().Elem()), v.UnsafePointer())
	d.isReview = true
	if !ok {
		d.reader = before
		return false
	}
	to.Raw, to.Object = d.in[before.at:d.at:d.at], obj
	return true
}

// setInteger sets an integer of a size in bytes. It returns false if the number does not fit.
func setInteger(size uintptr, to unsafe.Pointer, n int64) bool {
	switch size {
	case 8:
		*(*int64)(to) = n
		return true
	case 4:
		*(*int32)(to) = int32(n)    //nolint:gosec // compared below
		return int64(int32(n)) == n //nolint:gosec // this is the comparison
	case 2:
		*(*int16)(to) = int16(n)    //nolint:gosec // compared below
		return int64(int16(n)) == n //nolint:gosec // this is the comparison
	default:
		*(*int8)(to) = int8(n)     //nolint:gosec // compared below
		return int64(int8(n)) == n //nolint:gosec // this is the comparison
	}
}

// structure decodes an object into a struct. The fields of a struct are mostly in the order of the type.
func (d *decoder) structure(t *jsontype.Type, to unsafe.Pointer) bool {
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
		i := t.Find(name, expected)
		if i < 0 {
			if d.next(); !d.skip() {
				return false
			}
			continue
		}
		f := &t.Fields[i]
		if seen.add(i) || !d.value(f.Type, unsafe.Add(to, f.Offset)) {
			return false
		}
		expected = i + 1
	}
	return d.leave('}')
}

// texts decodes an object into a map[string]string.
func (d *decoder) texts(to *map[string]string) bool {
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
	*to = m
	return d.leave('}')
}

// either decodes a string or an integer that begins with c.
func (d *decoder) either(c byte, to *intstr.IntOrString) bool {
	var ok bool
	if c == '"' {
		to.Type = intstr.String
		to.StrVal, ok = d.text(c)
		return ok
	}
	n, ok := d.integer()
	to.IntVal = int32(n) //nolint:gosec // compared below
	return ok && int64(to.IntVal) == n
}

// resources decodes an object into a corev1.ResourceList.
func (d *decoder) resources(to *corev1.ResourceList) bool {
	if !d.enter() {
		return false
	}
	m := corev1.ResourceList{}
	n := 0
	for first := true; d.more('}', first); first = false {
		key, ok := d.key()
		if !ok {
			return false
		}
		d.next()
		var q resource.Quantity
		if !d.quantity(&q) {
			return false
		}
		m[corev1.ResourceName(key)] = q
		if n++; len(m) != n {
			return false
		}
	}
	*to = m
	return d.leave('}')
}

// quantity decodes a quantity.
func (d *decoder) quantity(to *resource.Quantity) bool {
	start := d.at
	return d.skip() && quantities.Unmarshal(d.in[start:d.at:d.at], to) == nil
}

// instant decodes a string into a time, as metav1.Time does.
func (d *decoder) instant(c byte, to *metav1.Time) bool {
	s, ok := d.text(c)
	if !ok {
		return false
	}
	at, err := time.Parse(time.RFC3339, s)
	to.Time = at.Local()
	return err == nil
}

// mapping decodes an object into a map with keys of a string type.
func (d *decoder) mapping(t *jsontype.Type, to reflect.Value) bool {
	if !d.enter() {
		return false
	}
	m := reflect.MakeMap(t.Go)
	n := 0
	for first := true; d.more('}', first); first = false {
		key, ok := d.key()
		if !ok {
			return false
		}
		item := reflect.New(t.Elem.Go).Elem()
		if !d.value(t.Elem, item.Addr().UnsafePointer()) {
			return false
		}
		m.SetMapIndex(reflect.ValueOf(key).Convert(t.Go.Key()), item)
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

// firstChunkBytes and chunkBytes are the least and the largest size of the memory that short strings share.
const firstChunkBytes, chunkBytes = 512, 4 << 10

// keep returns a copy of a string, whose quoted form is in. Short strings share memory, so that few of them are
// allocated and one that is kept does not keep much.
func (d *decoder) keep(in []byte) (string, bool) {
	if len(in) == 0 {
		return "", true
	}
	if d.strings.Cap()-d.strings.Len() < len(in) {
		size := min(max(firstChunkBytes, 2*d.strings.Cap()), chunkBytes, len(d.in)-d.at)
		d.strings = strings.Builder{}
		d.strings.Grow(max(len(in), size))
	}
	start := d.strings.Len()
	ok := true
	if d.isSimple {
		d.strings.Write(in)
	} else {
		ok = unquote(&d.strings, in)
	}
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
