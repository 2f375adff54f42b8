package patch

import (
	"reflect"
	"slices"
	"strconv"

	"github.com/postern-dev/postern/internal/jsontype"
)

// maxOperations bounds the operations for one list in which nothing is unknown.
// Beyond it the list is replaced as a whole. The API server copies a list for each
// item that an operation adds or removes, so that 10,000 of them take a second.
const maxOperations = 1000

// list is a list before and after the change.
type list struct {
	place

	key []int // The index of the field that is the merge key, or nil.
}

func (l list) item(i int) string { return l.path + "/" + strconv.Itoa(i) }

// unknown reports whether the item i of the document has a field that this build
// does not know.
func (l list) unknown(i int) bool {
	return hasUnknown(jsontype.Of(l.before.Type().Elem()), l.source.at(i))
}

func (l list) anyUnknown() bool {
	for i := range l.before.Len() {
		if l.unknown(i) {
			return true
		}
	}
	return false
}

// list compares two lists. It compares the items that did not move field by field,
// and adds and removes the others. It works from the end, so that each operation
// can use the index that an item has in the document.
func (w *walk) list(l list) error {
	if l.keepsItems() {
		return w.append(l)
	}
	id, err := w.identify(l)
	if err != nil {
		return err
	}
	// Items with a key are compared one by one below, which costs less.
	if !id.keyed && equal(l.before, l.after) {
		return nil
	}
	al := align(l, id)
	start, bounded := *w, false
	j := l.after.Len() - 1
	for i := l.before.Len(); i >= 0; i-- {
		if i < l.before.Len() {
			if al.became[i] < 0 {
				w.remove(l.item(i))
				continue
			}
			if err := w.inside(l, i, al.became[i]); err != nil {
				return err
			}
			j = al.became[i] - 1
		}
		// Insert the items that are new between this item and the one before it.
		for ; j >= 0 && !al.stayed(j); j-- {
			if err := w.insert(l, i, j, al.origin[j]); err != nil {
				return err
			}
		}
		if !bounded && w.operations-start.operations > maxOperations {
			if !l.anyUnknown() {
				w.out, w.operations = w.out[:len(start.out)], start.operations
				return w.emit("replace", l.path, l.after)
			}
			bounded = true
		}
	}
	return nil
}

// append compares two lists that keepsItems holds for, from the end, as list does.
func (w *walk) append(l list) error {
	n := l.before.Len()
	for j := l.after.Len() - 1; j >= n; j-- {
		if err := w.insert(l, n, j, -1); err != nil {
			return err
		}
	}
	for i := n - 1; i >= 0; i-- {
		if err := w.inside(l, i, i); err != nil {
			return err
		}
	}
	return nil
}

// keepsItems reports whether the keys of a few items are the same ones in the same order, and those of new items follow,
// so that there is nothing to align.
func (l list) keepsItems() bool {
	n, m := l.before.Len(), l.after.Len()
	if l.key == nil || n > m || m > fewItems {
		return false
	}
	keys := make([]string, 0, fewItems)
	for i := range m {
		key := fieldAt(l.after.Index(i), l.key)
		if key.Kind() != reflect.String || slices.Contains(keys, key.String()) {
			return false
		}
		if i < n && fieldAt(l.before.Index(i), l.key).String() != key.String() {
			return false
		}
		keys = append(keys, key.String())
	}
	return true
}

// fewItems is the length up to which comparing each two items costs less than an index.
const fewItems = 16

// inside compares item i before the change with item j after it.
func (w *walk) inside(l list, i, j int) error {
	p := place{before: l.before.Index(i), after: l.after.Index(j)}
	if i == j && len(l.change.parts) > 0 {
		p.change = l.change.at(i)
	} else {
		p.change = changeOf(p.before, p.after)
	}
	if p.change == nil {
		return nil
	}
	p.path, p.source = l.item(i), l.source.item(i)
	if _, isSet := p.source.has(p.before); !isSet {
		if equal(p.before, p.after) {
			return nil
		}
		return w.emit("replace", p.path, p.after)
	}
	return w.value(p)
}

// insert adds item j of the list after the change in front of item i of the
// document. An item that moved is added as the document has it, with the fields
// that this build does not know, and then compared with its origin.
func (w *walk) insert(l list, i, j, origin int) error {
	if origin < 0 || l.source.at(origin).IsNull() {
		return w.emit("add", l.item(i), l.after.Index(j))
	}
	w.add(l.item(i), l.source.at(origin))
	p := place{path: l.item(i), source: l.source.item(origin), before: l.before.Index(origin), after: l.after.Index(j)}
	if p.change = changeOf(p.before, p.after); p.change == nil {
		return nil
	}
	return w.value(p)
}
