package registration

import "reflect"

// covers reports whether have contains every field of want with the same value.
// Lists of named items are compared by name, as server-side apply merges them.
// Other lists, and the fields in isAtomic, are compared as a whole.
func covers(have, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		have, ok := have.(map[string]any)
		if !ok {
			return false
		}
		for k, w := range want {
			h, ok := have[k]
			if !ok && w != nil || !covers(h, w) || isAtomic[k] && !reflect.DeepEqual(h, w) {
				return false
			}
		}
		return true
	case []any:
		have, ok := have.([]any)
		if !ok {
			return false
		}
		if byName := named(have); byName != nil && named(want) != nil {
			for name, w := range named(want) {
				if !covers(byName[name], w) {
					return false
				}
			}
			return true
		}
		if len(have) != len(want) {
			return false
		}
		for i := range want {
			if !covers(have[i], want[i]) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(have, want)
}

// isAtomic holds the fields of a webhook that have one owner. Whatever is added to them restricts the webhook, and server-side apply
// replaces it.
var isAtomic = map[string]bool{"rules": true, "namespaceSelector": true, "objectSelector": true}
