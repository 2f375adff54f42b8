package patch

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"

	"github.com/postern-dev/postern/internal/jsontype"
)

// maxOperations bounds the operations for one list. Beyond it the list is replaced as a whole. The API server copies a
// list for each item that an operation adds, so that 10,000 of them take a second.
const maxOperations = 100

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

// list compares two lists. It compares the items that stay in place field by field, and items that follow them are
// added. In every other case the list is replaced.
func (w *walk) list(l list) error {
	if l.keepsItems() {
		return w.append(l, nil)
	}
	id, err := w.identify(l)
	if err != nil {
		return err
	}
	// Items with a key are compared one by one below, which costs less.
	if !id.keyed && equal(l.before, l.after) {
		return nil
	}
	origins := id.origins()
	for j, i := range origins {
		if isLate := j >= l.before.Len(); isLate && i >= 0 || !isLate && i != j {
			return w.replace(l, origins)
		}
	}
	if l.after.Len() < l.before.Len() {
		return w.replace(l, origins)
	}
	return w.append(l, origins)
}

// append compares the items of two lists that stay where they are, and adds those that follow. It works from the end, so
// that each operation can use the index that an item has in the document.
func (w *walk) append(l list, origins []int) error {
	n, m := l.before.Len(), l.after.Len()
	changes, changed := make([]*change, n), 0
	for i := range changes {
		if changes[i] = l.changeAt(i); changes[i] != nil {
			changed++
		}
	}
	if changed+m-n > maxOperations && origins != nil {
		return w.replace(l, origins)
	}
	for j := m - 1; j >= n; j-- {
		if err := w.emit("add", l.item(n), l.after.Index(j)); err != nil {
			return err
		}
	}
	for i := n - 1; i >= 0; i-- {
		if err := w.inside(l, i, changes[i]); err != nil {
			return err
		}
	}
	return nil
}

// changeAt returns the change of the item i, which stays where it is.
func (l list) changeAt(i int) *change {
	if len(l.change.parts) > 0 {
		return l.change.at(i)
	}
	return changeOf(l.before.Index(i), l.after.Index(i))
}

// replace replaces a list. An item that was in the list before keeps the text that it has in the document, with the fields
// that this build does not know. It is then compared with its origin.
func (w *walk) replace(l list, origins []int) error {
	w.begin("replace", l.path)
	w.out = append(w.out, `,"value":[`...)
	item := jsontype.Of(l.after.Type().Elem())
	var changed []place
	for j, i := range origins {
		if err := w.check(); err != nil {
			return fmt.Errorf("comparing %s: %w", l.path, err)
		}
		if j > 0 {
			w.out = append(w.out, ',')
		}
		p := place{path: l.item(j), after: l.after.Index(j), change: different}
		keepsText := i >= 0 && !l.source.at(i).IsNull()
		if keepsText {
			p.source, p.before = l.source.item(i), l.before.Index(i)
			p.change = changeOf(p.before, p.after)
			keepsText = p.change == nil || l.unknown(i)
		}
		if !keepsText {
			var err error
			if w.out, err = appendJSON(item, w.out, addressed(p.after)); err != nil {
				return fmt.Errorf("encoding %s: %w", p.path, err)
			}
			continue
		}
		w.out = append(w.out, l.source.at(i)...)
		if p.change != nil {
			changed = append(changed, p)
		}
	}
	w.out = append(w.out, "]}"...)
	for _, p := range changed {
		if err := w.value(p); err != nil {
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

// inside makes the patch for the change of the item i, which stays where it is.
func (w *walk) inside(l list, i int, c *change) error {
	if c == nil {
		return nil
	}
	p := place{path: l.item(i), source: l.source.item(i), before: l.before.Index(i), after: l.after.Index(i), change: c}
	if _, isSet := p.source.has(p.before); !isSet {
		if equal(p.before, p.after) {
			return nil
		}
		return w.emit("replace", p.path, p.after)
	}
	return w.value(p)
}
