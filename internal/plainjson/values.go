package plainjson

import (
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/postern-dev/postern/internal/jsontype"
	"github.com/postern-dev/postern/internal/quantities"
	"github.com/postern-dev/postern/internal/rawjson"
)

// texts decodes an object into a map[string]string. Of two members with one name, which API servers write for names that
// were not UTF-8, the last one counts.
func (d *decoder) texts(to *map[string]string) bool {
	if !d.Enter() {
		return false
	}
	m := map[string]string{}
	for first := true; d.More('}', first); first = false {
		key, ok := d.key()
		if !ok {
			return false
		}
		var value string
		if c := d.Next(); c == 'n' {
			ok = d.Literal("null")
		} else {
			value, ok = d.text(c)
		}
		if !ok {
			return false
		}
		m[key] = value
	}
	*to = m
	return d.Leave('}')
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
	if !d.Enter() {
		return false
	}
	m := corev1.ResourceList{}
	for first := true; d.More('}', first); first = false {
		key, ok := d.key()
		if !ok {
			return false
		}
		var q resource.Quantity
		if !d.quantity(&q) {
			return false
		}
		m[corev1.ResourceName(key)] = q
	}
	*to = m
	return d.Leave('}')
}

// quantity decodes a quantity.
func (d *decoder) quantity(to *resource.Quantity) bool {
	text, ok := d.Value()
	return ok && quantities.Unmarshal(text, to) == nil
}

// instant decodes a string that begins with c into a time, as metav1.Time and metav1.MicroTime do with their layouts.
func (d *decoder) instant(c byte, to *time.Time, layout string) bool {
	s, ok := d.text(c)
	if !ok {
		return false
	}
	at, err := time.Parse(layout, s)
	if ok = err == nil; !ok {
		at, ok = farTime(s, layout)
	}
	*to = at.Local()
	return ok
}

// farTime parses a time whose year has more than four digits, or a sign. API servers write such a time if a client sent
// it as protobuf, where it is a number, or with a zone: 9999-12-31T23:59:59-01:00.
func farTime(s, layout string) (time.Time, bool) {
	n := strings.IndexByte(s[min(len(s), 1):], '-') + 1
	year, err := strconv.Atoi(s[:n])
	if err != nil || 0 <= year && year <= 9999 || year < -maxYear || year > maxYear {
		return time.Time{}, false
	}
	// The calendar repeats after 400 years, so the same text with this year has the same errors.
	near := 2000 + year%400
	at, err := time.Parse(layout, strconv.Itoa(near)+s[n:])
	return startOf(year).Add(at.Sub(startOf(near))), err == nil
}

// maxYear is the year up to which a time in seconds reaches.
const maxYear = 292277026596

func startOf(year int) time.Time { return time.Date(year, time.January, 1, 0, 0, 0, 0, time.UTC) }

// mapping decodes an object into a map with keys of a string type.
func (d *decoder) mapping(t *jsontype.Type, to reflect.Value) bool {
	if !d.Enter() {
		return false
	}
	m := reflect.MakeMap(t.Go)
	for first := true; d.More('}', first); first = false {
		key, ok := d.key()
		if !ok {
			return false
		}
		item := reflect.New(t.Elem.Go).Elem()
		if !d.value(t.Elem, item.Addr().UnsafePointer()) {
			return false
		}
		m.SetMapIndex(reflect.ValueOf(key).Convert(t.Go.Key()), item)
	}
	to.Set(m)
	return d.Leave('}')
}

// text decodes a string that begins with c.
func (d *decoder) text(c byte) (string, bool) {
	start := d.At + 1
	if c != '"' || !d.SkipString() {
		return "", false
	}
	return d.keep(d.Text[start : d.At-1])
}

// key decodes the name of a member of a map and the colon.
func (d *decoder) key() (string, bool) {
	s, ok := d.text(d.Next())
	return s, ok && d.Colon()
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
		size := min(max(firstChunkBytes, 2*d.strings.Cap()), chunkBytes, len(d.Text)-d.At)
		d.strings = strings.Builder{}
		d.strings.Grow(max(len(in), size))
	}
	start := d.strings.Len()
	ok := true
	if d.IsSimple {
		d.strings.Write(in)
	} else {
		ok = rawjson.Unquote(&d.strings, in)
	}
	return d.strings.String()[start:], ok
}

// integer decodes an integer without an exponent.
func (d *decoder) integer() (int64, bool) {
	start := d.At
	if !d.SkipNumber() {
		return 0, false
	}
	digits := d.Text[start:d.At]
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
	if negative && n <= -math.MinInt64 {
		return -int64(n), true
	}
	return int64(n), n <= math.MaxInt64
}
