package admit

import (
	"encoding/json"
	"fmt"
	"reflect"
)

// list compares two lists. Items that are the same one, by their merge key or by
// being equal, stay where they are and are compared inside; the others are added
// and removed. It works from the end, so that the index of an item is still the
// one it has in the document.
func (w *walk) list(path string, b, a reflect.Value, doc []any, mergeKey string) error {
	id, err := w.identify(b, a, mergeKey)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", path, err)
	}
	pairs, ok := id.align()
	if !ok {
		return w.emit("replace", path, a)
	}
	kept := make([]bool, a.Len())
	moved := make([]bool, b.Len())
	for i, j := range pairs {
		if j >= 0 {
			kept[j], moved[i] = true, true
		}
	}
	j := a.Len() - 1
	for i := b.Len(); i >= 0; i-- {
		if i < b.Len() {
			if pairs[i] < 0 {
				w.ops = append(w.ops, operation{Op: "remove", Path: item(path, i)})
				continue
			}
			if err := w.pair(item(path, i), b.Index(i), a.Index(pairs[i]), doc[i]); err != nil {
				return err
			}
			j = pairs[i] - 1
		}
		// The items before this one, or at the end of the list, that are new.
		for ; j >= 0 && !kept[j]; j-- {
			from := id.origin(j, moved)
			if from < 0 || doc[from] == nil {
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

func (w *walk) pair(path string, b, a reflect.Value, raw any) error {
	if equal(b, a) {
		return nil
	}
	return w.value(path, b, a, raw, "")
}

// move adds an item that stood elsewhere in the list: as the document has it,
// with the fields that this build does not know, and then what changed in it.
func (w *walk) move(path string, b, a reflect.Value, raw any) error {
	data, err := json.Marshal(raw)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", path, err)
	}
	w.ops = append(w.ops, operation{Op: "add", Path: path, Value: data})
	return w.pair(path, b, a, raw)
}
