package admit

import (
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/postern-dev/postern/pkg/router/rawjson"
)

// list compares two lists. Items that are the same one, by their merge key or by
// being equal, stay where they are and are compared inside; the others are added
// and removed. It works from the end, so that the index of an item is still the
// one it has in the document.
func (w *walk) list(path string, b, a reflect.Value, doc []rawjson.Value, mergeKey string) error {
	id, err := w.identify(b, a, mergeKey)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", path, err)
	}
	if !id.keyed && equal(b, a) {
		return nil
	}
	pairs, ok := id.align()
	if !ok {
		return w.emit("replace", path, a)
	}
	moved, kept := paired(pairs, a.Len())
	j := a.Len() - 1
	for i := b.Len(); i >= 0; i-- {
		if i < b.Len() {
			if pairs[i] < 0 {
				w.ops = append(w.ops, operation{Op: "remove", Path: item(path, i)})
				continue
			}
			if err := w.value(item(path, i), b.Index(i), a.Index(pairs[i]), doc[i], ""); err != nil {
				return err
			}
			j = pairs[i] - 1
		}
		// The items before this one, or at the end of the list, that are new.
		for ; j >= 0 && !kept[j]; j-- {
			from := id.origin(j, moved)
			if from < 0 || doc[from].IsNull() {
				err = w.emit("add", item(path, i), a.Index(j))
			} else {
				moved[from] = true
				err = w.move(item(path, i), b.Index(from), a.Index(j), doc[from])
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// paired tells which items of two lists, the second of which has m, are in pairs.
func paired(pairs []int, m int) (before, after []bool) {
	before, after = make([]bool, len(pairs)), make([]bool, m)
	for i, j := range pairs {
		if j >= 0 {
			before[i], after[j] = true, true
		}
	}
	return before, after
}

// move adds an item that stood elsewhere in the list: as the document has it,
// with the fields that this build does not know, and then what changed in it.
func (w *walk) move(path string, b, a reflect.Value, raw rawjson.Value) error {
	w.ops = append(w.ops, operation{Op: "add", Path: path, Value: json.RawMessage(raw)})
	return w.value(path, b, a, raw, "")
}
