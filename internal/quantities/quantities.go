// Package quantities finds quantities that take seconds or hours to parse or to compute with, such as 1e1000000000 and
// 1e-1000000000. The package calls such a quantity far. API servers accept far quantities with a positive exponent in
// the kinds of k8s.io/api. They accept all far quantities in custom resources, because they do not parse these.
package quantities

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// MaxLength is the largest number of characters of a quantity that is not far.
const MaxLength = 1100

// MaxExponent is the largest absolute value of the decimal exponent of a quantity that is not far.
const MaxExponent = 1000

// MaxCustom is the largest number of characters of a quantity in a custom resource that is not far, and the largest absolute value of
// its exponent. API servers do not parse it, nor cap it in what they write. To format one with a thousand digits takes a fifth of a
// millisecond.
const MaxCustom = 100

// maxSuffix is longer than what follows the digits of a long quantity that an API server wrote.
const maxSuffix = 24

// ErrFar is returned for a far quantity that is not replaced by another value.
var ErrFar = fmt.Errorf("a quantity has more than %d characters, or an exponent beyond %d", MaxLength, MaxExponent)

// ErrFarCustom is the error for a quantity that In finds.
var ErrFarCustom = fmt.Errorf("a quantity has more than %d characters, or an exponent beyond %d", MaxCustom, MaxCustom)

// IsFar reports whether the text of a quantity, without quotes and space, is far.
func IsFar[T string | []byte](text T) bool {
	return len(text) > MaxLength || hasFarExponent(text)
}

func hasFarExponent[T string | []byte](text T) bool { return hasExponentBeyond(text, MaxExponent) }

func hasExponentBeyond[T string | []byte](text T, most int) bool {
	at, ok := exponent(text)
	if !ok {
		return false
	}
	n, err := strconv.Atoi(string(text[at:]))
	return errors.Is(err, strconv.ErrRange) || n > most
}

// exponent returns the index at which the decimal exponent of a quantity begins, without its sign and leading zeros. It
// returns false if there is no exponent.
func exponent[T string | []byte](text T) (at int, ok bool) {
	i := len(text)
	for i > 0 && isDigit(text[i-1]) {
		i--
	}
	if at = i; at == len(text) {
		return at, false
	}
	for at < len(text) && text[at] == '0' {
		at++
	}
	if i > 0 && isSign(text[i-1]) {
		i--
	}
	return at, i > 0 && (text[i-1] == 'e' || text[i-1] == 'E')
}

// Unmarshal decodes the JSON of a quantity. It decodes a far quantity as the value at which the documentation of
// Quantity caps: 2^63 - 1, or the smallest amount, with the sign of the text. It returns ErrFar for text of more than
// MaxLength characters that no API server writes, such as a long fraction.
func Unmarshal(text []byte, to *resource.Quantity) error {
	if len(text) < len(`1e1001`) {
		return to.UnmarshalJSON(text)
	}
	inner := text
	if n := len(text); text[0] == '"' && text[n-1] == '"' {
		inner = text[1 : n-1]
	}
	inner = bytes.TrimSpace(inner)
	switch {
	case len(inner) > MaxLength:
		return unmarshalLong(inner, to)
	case !hasFarExponent(inner):
		return to.UnmarshalJSON(text)
	}
	at := bytes.LastIndexAny(inner, "eE")
	// The same text with a small exponent has the same errors, and the same sign.
	if err := to.UnmarshalJSON(append(slices.Clone(inner[:at]), "e1"...)); err != nil {
		return err
	}
	switch sign, isSmall := to.Sign(), inner[at+1] == '-'; {
	case sign == 0:
		*to = resource.Quantity{Format: to.Format}
	case isSmall:
		*to = *resource.NewScaledQuantity(int64(sign), resource.Nano)
	default:
		*to = largest(sign)
	}
	return nil
}

// unmarshalLong decodes a quantity of more than MaxLength characters. An API server writes all digits of a large number,
// and keeps the zeros that a client wrote in front of a small number or of its exponent.
func unmarshalLong(text []byte, to *resource.Quantity) error {
	sign, number := text[:0], text
	if isSign(text[0]) {
		sign, number = text[:1], text[1:]
	}
	number = bytes.TrimLeft(number, "0")
	if at, ok := exponent(number); ok {
		number = slices.Concat(bytes.TrimRight(number[:at], "0"), []byte{'0'}, number[at:])
	}
	if len(number) == 0 || !isDigit(number[0]) {
		number = slices.Concat([]byte{'0'}, number)
	}
	if short := slices.Concat(sign, number); len(short) <= MaxLength {
		return Unmarshal(short, to)
	}
	digits := len(number) - len(bytes.TrimLeft(number, "0123456789"))
	suffix := number[digits:]
	isFar := hasFarExponent(number)
	if len(suffix) > maxSuffix || isFar && bytes.IndexByte(suffix, '-') >= 0 {
		return ErrFar
	}
	if isFar {
		suffix = []byte("e1")
	}
	// Fewer digits have the same errors. Those that are left out are more than a suffix makes smaller.
	if err := to.UnmarshalJSON(slices.Concat(sign, number[:maxSuffix], suffix)); err != nil {
		return err
	}
	*to = largest(to.Sign())
	return nil
}

// largest returns the value at which the documentation of Quantity caps.
func largest(sign int) resource.Quantity {
	return *resource.NewQuantity(int64(sign)*math.MaxInt64, resource.DecimalSI)
}

// Cap replaces far quantities in a list by the values that Unmarshal returns for them. The list belongs to a stored
// object that client-go decoded.
func Cap(list corev1.ResourceList) {
	for name, q := range list {
		if !IsStoredFar(q) {
			continue
		}
		if Unmarshal([]byte(`"`+q.String()+`"`), &q) == nil {
			list[name] = q
		}
	}
}

// IsStoredFar reports whether a quantity that client-go decoded is far.
func IsStoredFar(q resource.Quantity) bool {
	return q.Format == resource.DecimalExponent && hasFarExponent(q.String())
}

// Contains reports whether JSON text may have a far quantity. It also returns true for strings and numbers of other
// fields that look like far quantities.
func Contains(json []byte) bool {
	for i := 0; i < len(json); i++ {
		if !isNumeric(json[i]) {
			continue
		}
		start := i
		for i < len(json) && isNumeric(json[i]) {
			i++
		}
		if isEdge(json, start-1) && (i-start > MaxLength || isEdge(json, i) && hasFarExponent(json[start:i])) {
			return true
		}
	}
	return false
}

// In returns the path of a quantity that is far in a custom resource, in the content of a pod template or of an object that
// contains templates, or "" if there is none. Such content has quantities only in the fields emptyDir.sizeLimit,
// resourceFieldRef.divisor, limits, overhead and requests.
func In(content any) string { return in("", content) }

func in(parent string, content any) string {
	switch v := content.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if isFarField(parent, key, v[key]) {
				return "." + key
			}
			if path := in(key, v[key]); path != "" {
				return "." + key + path
			}
		}
	case []any:
		for i := range v {
			if path := in("", v[i]); path != "" {
				return "[" + strconv.Itoa(i) + "]" + path
			}
		}
	}
	return ""
}

func isFarField(parent, field string, value any) bool {
	switch field {
	case "sizeLimit":
		return parent == "emptyDir" && isFarValue(value)
	case "divisor":
		return parent == "resourceFieldRef" && isFarValue(value)
	case "requests", "limits", "overhead":
		list, _ := value.(map[string]any)
		for _, quantity := range list {
			if isFarValue(quantity) {
				return true
			}
		}
	}
	return false
}

func isFarValue(quantity any) bool {
	text, ok := quantity.(string) // A number of JSON has at most 19 digits, with which Postern computes fast.
	text = strings.TrimSpace(text)
	return ok && (len(text) > MaxCustom || hasExponentBeyond(text, MaxCustom))
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isSign(c byte) bool { return c == '+' || c == '-' }

func isNumeric(c byte) bool { return isDigit(c) || isSign(c) || c == '.' || c == 'e' || c == 'E' }

// isEdge reports whether a string or a number of JSON may begin after, or end before, the byte at an index.
func isEdge(json []byte, i int) bool {
	return i < 0 || i >= len(json) || bytes.IndexByte([]byte("\" \t\r\n:,[]{}"), json[i]) >= 0
}
