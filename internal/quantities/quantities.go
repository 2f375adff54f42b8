// Package quantities finds quantities that take seconds or hours to parse or to compute with, such as 1e1000000000 and
// 1e-1000000000. Such quantities are called far. API servers accept the large ones of them in the kinds of k8s.io/api, and
// all of them in custom resources, whose quantities they do not parse.
package quantities

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// MaxLength is the length of the longest text in characters that is not far.
const MaxLength = 64

// MaxExponent is the largest decimal exponent, positive or negative, that is not far.
const MaxExponent = 1000

// ErrFar is the error for a far quantity that has no value to decode it to.
var ErrFar = fmt.Errorf("a quantity has more than %d characters, or an exponent beyond %d", MaxLength, MaxExponent)

// IsFar reports whether the text of a quantity, without quotes and space, is far.
func IsFar[T string | []byte](text T) bool {
	return len(text) > MaxLength || hasFarExponent(text)
}

func hasFarExponent[T string | []byte](text T) bool {
	i := len(text)
	for i > 0 && isDigit(text[i-1]) {
		i--
	}
	digits := text[i:]
	for len(digits) > 0 && digits[0] == '0' {
		digits = digits[1:]
	}
	if i > 0 && isSign(text[i-1]) {
		i--
	}
	if i == 0 || text[i-1] != 'e' && text[i-1] != 'E' {
		return false
	}
	n, err := strconv.Atoi(string(digits))
	return errors.Is(err, strconv.ErrRange) || n > MaxExponent
}

// Unmarshal decodes the JSON of a quantity. It decodes a far exponent to the value at which the documentation of Quantity
// caps: 2^63 - 1, or the smallest amount, with the sign of the text. It returns ErrFar for a text that is longer than
// MaxLength, which API servers do not write.
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
		return ErrFar
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
		*to = *resource.NewQuantity(int64(sign)*math.MaxInt64, resource.DecimalSI)
	}
	return nil
}

// Cap replaces far quantities in a list by those to which Unmarshal decodes them. It is for objects that an API server
// stored, and sent to client-go.
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

// Contains reports whether JSON text may have a far quantity. It takes other texts and numbers for quantities that look
// like far ones.
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

// In returns the path of a far quantity in the content of a pod template, of a part of one, or of an object that has them.
// It returns "" if there is none. Such content has quantities in the fields divisor, limits, overhead, requests and
// sizeLimit only.
func In(content any) string {
	switch v := content.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if isFarField(key, v[key]) {
				return "." + key
			}
			if path := In(v[key]); path != "" {
				return "." + key + path
			}
		}
	case []any:
		for i := range v {
			if path := In(v[i]); path != "" {
				return "[" + strconv.Itoa(i) + "]" + path
			}
		}
	}
	return ""
}

func isFarField(field string, value any) bool {
	switch field {
	case "sizeLimit", "divisor":
		return isFarValue(value)
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
	switch q := quantity.(type) {
	case string:
		return IsFar(string(bytes.TrimSpace([]byte(q))))
	case float64:
		return IsFar(strconv.FormatFloat(q, 'e', -1, 64))
	}
	return false
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isSign(c byte) bool { return c == '+' || c == '-' }

func isNumeric(c byte) bool { return isDigit(c) || isSign(c) || c == '.' || c == 'e' || c == 'E' }

// isEdge reports whether a text or a number of JSON may begin after the byte at an index, or end before it.
func isEdge(json []byte, i int) bool {
	return i < 0 || i >= len(json) || bytes.IndexByte([]byte("\" \t\r\n:,[]{}"), json[i]) >= 0
}
