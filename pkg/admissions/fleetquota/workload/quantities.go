package workload

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// API servers parse the quantities of pods, and not those of custom resources. To compute with a quantity such as
// 1e1000000000 takes hours.
const (
	// maxQuantity bounds the length of a quantity, and maxExponent its exponent.
	maxQuantity = 64
	maxExponent = 64
)

// enormous returns the path of a quantity in a pod template that is too long or too large to compute with, or "".
func enormous(value any) string {
	switch v := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if isEnormous(key, v[key]) {
				return "." + key
			}
			if path := enormous(v[key]); path != "" {
				return "." + key + path
			}
		}
	case []any:
		for i := range v {
			if path := enormous(v[i]); path != "" {
				return "[" + strconv.Itoa(i) + "]" + path
			}
		}
	}
	return ""
}

// isEnormous reports whether a field has such a quantity. Pod templates have quantities only in these fields.
func isEnormous(field string, value any) bool {
	switch field {
	case "sizeLimit", "divisor":
		return beyond(value)
	case "requests", "limits", "overhead":
		list, _ := value.(map[string]any)
		for _, quantity := range list {
			if beyond(quantity) {
				return true
			}
		}
	}
	return false
}

func beyond(quantity any) bool {
	var text string
	switch q := quantity.(type) {
	case string:
		text = q
	case float64:
		text = strconv.FormatFloat(q, 'e', -1, 64)
	}
	if len(text) > maxQuantity {
		return true
	}
	i := strings.LastIndexAny(text, "eE")
	if i < 0 {
		return false
	}
	// A text that is no number is the suffix of a unit, such as that of 1Ei.
	exponent, err := strconv.Atoi(strings.TrimSpace(text[i+1:]))
	return errors.Is(err, strconv.ErrRange) || exponent < -maxExponent || exponent > maxExponent
}
