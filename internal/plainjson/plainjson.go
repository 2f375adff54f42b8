// Package plainjson decodes JSON text in the plain form in which API servers write it, in one pass and several times
// as fast as a general decoder.
//
// It has no semantics of its own: whatever it decodes, sigs.k8s.io/json decodes from the same text to the same value,
// and it refuses all other text. There are three exceptions, all of text that API servers write: a far quantity (package
// quantities), for which sigs.k8s.io/json takes up to hours, a time that is before the year 0 or after the year 9999 in UTC,
// as 9999-12-31T23:59:59-01:00 is, and a review with an object of the largest depth, which is deeper than its object.
//
// Plain text has no duplicate fields, no invalid UTF-8, no surrogate pairs, no escaped field names, and integers without
// exponents. All text that API servers write is plain (TestEveryKindFromProtobufIsPlain in package patch). The caller passes
// text that is refused, plain or not, to sigs.k8s.io/json, which decodes it or has the error. FuzzUnmarshal compares the two.
package plainjson

import (
	"bytes"
	"encoding/json"
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
	"github.com/postern-dev/postern/internal/rawjson"
)

// Unmarshal decodes text into the value that v points to, which must be zero. It returns false if the text is not
// plain, is not valid, or does not match the type. The value is then unspecified.
//
// The result shares no memory with text.
func Unmarshal(text []byte, v any) bool {
	d := decoder{Reader: rawjson.Reader{Text: text, MaxDepth: rawjson.MaxDepth}}
	return d.all(v)
}

// UnmarshalReview is Unmarshal for an AdmissionReview. The RawExtensions of the review share the memory of text.
// UnmarshalReview decodes a JSON object of such a RawExtension also into the value that objectFor returns for it, which
// becomes its Object and shares no memory with text. objectFor and its result may be nil. A value that Unmarshal would
// refuse is not decoded, and has only its text.
func UnmarshalReview(text []byte, review *admissionv1.AdmissionReview, objectFor func(*runtime.RawExtension) runtime.Object) bool {
	d := decoder{Reader: rawjson.Reader{Text: text, MaxDepth: rawjson.ReviewDepth}, isReview: true, objectFor: objectFor}
	return d.all(review)
}

// decoder decodes one text. It writes through pointers to the fields of a value, at the offsets in its
// jsontype.Type.
type decoder struct {
	rawjson.Reader

	strings strings.Builder
	// isReview says that the value is part of a review, and not of an object in it.
	isReview  bool
	objectFor func(*runtime.RawExtension) runtime.Object
}

// all decodes the whole text.
func (d *decoder) all(v any) bool {
	to := reflect.ValueOf(v)
	return d.value(jsontype.Of(to.Type().Elem()), to.UnsafePointer()) && d.Next() == 0 && d.At == len(d.Text)
}

// value decodes the value that follows. Its methods return false if the text is not plain.
func (d *decoder) value(t *jsontype.Type, to unsafe.Pointer) bool {
	c := d.Next()
	if c == 'n' && t.Form != jsontype.Own {
		// A value that is not decoded twice is zero already.
		return d.Literal("null")
	}
	switch t.Form {
	case jsontype.Text:
		s, ok := d.text(c)
		*(*string)(to) = s
		return ok
	case jsontype.Bool:
		*(*bool)(to) = c == 't'
		return c == 't' && d.Literal("true") || c == 'f' && d.Literal("false")
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
		return d.instant(c, &(*metav1.Time)(to).Time, time.RFC3339)
	case jsontype.Either:
		return d.either(c, (*intstr.IntOrString)(to))
	default:
		return d.other(t, to)
	}
}

// other leaves a value to its type, or to sigs.k8s.io/json.
func (d *decoder) other(t *jsontype.Type, to unsafe.Pointer) bool {
	v := reflect.NewAt(t.Go, to)
	if at, ok := reflect.TypeAssert[*metav1.MicroTime](v); ok && d.Next() == '"' {
		return d.instant('"', &at.Time, metav1.RFC3339Micro)
	}
	text, ok := d.Value()
	if !ok {
		return false
	}
	if u, ok := reflect.TypeAssert[json.Unmarshaler](v); ok && t.Go.Name() != "" {
		return u.UnmarshalJSON(text) == nil
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(text, v.Interface()) == nil
}

// raw reads the text of a value.
func (d *decoder) raw(to *[]byte) bool {
	text, ok := d.Value()
	if *to = text; !d.isReview {
		*to = bytes.Clone(text)
	}
	return ok
}

// object decodes an object into the value that objectFor has for it. It reads nothing if there is none, or if the
// text is not plain.
func (d *decoder) object(to *runtime.RawExtension) bool {
	before := d.Reader
	obj := d.objectFor(to)
	if obj == nil {
		return false
	}
	d.isReview = false
	v := reflect.ValueOf(obj)
	ok := d.value(jsontype.Of(v.Type().Elem()), v.UnsafePointer())
	d.isReview = true
	if !ok {
		d.Reader = before
		return false
	}
	to.Raw, to.Object = d.Text[before.At:d.At:d.At], obj
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
	if !d.Enter() {
		return false
	}
	var seen [jsontype.MaxFields / 64]uint64
	expected := 0
	for first := true; d.More('}', first); first = false {
		name, ok := d.Name()
		if !ok {
			return false
		}
		i := t.Find(name, expected)
		if i < 0 {
			if !d.Skip() {
				return false
			}
			continue
		}
		f, bit := &t.Fields[i], uint64(1)<<(i%64)
		if seen[i/64]&bit != 0 {
			return false
		}
		seen[i/64] |= bit
		if !d.value(f.Type, unsafe.Add(to, f.Offset)) {
			return false
		}
		expected = i + 1
	}
	return d.Leave('}')
}
