package admit

import (
	"encoding/json"
	"fmt"
	"reflect"
)

// maxAlignment bounds the table that two lists are aligned by, n × m entries.
// Beyond it a list is replaced as a whole.
const maxAlignment = 1 << 20

// list compares two lists. Items that are the same one, by their merge key or by
// being equal, stay where they are and are compared inside; the others are added
// and removed. It works from the end, so that the index of an item is still the
// one it has in the document.
func (w *walk) list(path string, b, a reflect.Value, doc []any, mergeKey string) error {
	if b.Len()*a.Len() > maxAlignment {
		return w.emit("replace", path, a)
	}
	pairs := w.align(b, a, mergeKey)
	kept := make([]bool, a.Len())
	for _, j := range pairs {
		if j >= 0 {
			kept[j] = true
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
			if err := w.insert(item(path, i), b, a.Index(j), doc, pairs); err != nil {
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

// insert adds an item. One that was elsewhere in the list before is written as
// the document has it, with the fields that this build does not know.
func (w *walk) insert(path string, b, a reflect.Value, doc []any, pairs []int) error {
	for i := range b.Len() {
		if pairs[i] < 0 && doc[i] != nil && equal(b.Index(i), a) {
			data, err := json.Marshal(doc[i])
			if err != nil {
				return fmt.Errorf("encoding %s: %w", path, err)
			}
			w.ops = append(w.ops, operation{Op: "add", Path: path, Value: data})
			return nil
		}
	}
	return w.emit("add", path, a)
}

// align returns for each item of b the index of the item of a that it became, or
// -1. The indexes ascend.
func (w *walk) align(b, a reflect.Value, mergeKey string) []int {
	same := w.identity(b, a, mergeKey)
	n, m := b.Len(), a.Len()
	pairs := make([]int, n)
	for i := range pairs {
		pairs[i] = -1
	}
	start := 0
	for start < n && start < m && same(start, start) {
		pairs[start] = start
		start++
	}
	end := 0
	for end < n-start && end < m-start && same(n-1-end, m-1-end) {
		pairs[n-1-end] = m - 1 - end
		end++
	}
	longestCommon(pairs, start, n-end, start, m-end, same)
	if mergeKey == "" {
		pairGaps(pairs, start, n-end, start, m-end)
	}
	return pairs
}

// identity tells whether item i of b and item j of a are the same one.
func (w *walk) identity(b, a reflect.Value, mergeKey string) func(i, j int) bool {
	if key := w.fields.named(b.Type().Elem(), mergeKey); key != nil {
		return func(i, j int) bool {
			return equal(b.Index(i).FieldByIndex(key), a.Index(j).FieldByIndex(key))
		}
	}
	return func(i, j int) bool { return equal(b.Index(i), a.Index(j)) }
}

// longestCommon pairs a longest common subsequence of the items i0 ≤ i < i1 of one
// list and j0 ≤ j < j1 of the other.
func longestCommon(pairs []int, i0, i1, j0, j1 int, same func(i, j int) bool) {
	n, m := i1-i0, j1-j0
	if n <= 0 || m <= 0 {
		return
	}
	length := make([][]int, n+1)
	for i := range length {
		length[i] = make([]int, m+1)
	}
	match := make([]bool, n*m)
	for i := n - 1; i >= 0; i-- {
		for j := m - 1; j >= 0; j-- {
			if same(i0+i, j0+j) {
				match[i*m+j] = true
				length[i][j] = length[i+1][j+1] + 1
			} else {
				length[i][j] = max(length[i+1][j], length[i][j+1])
			}
		}
	}
	for i, j := 0, 0; i < n && j < m; {
		switch {
		case match[i*m+j]:
			pairs[i0+i] = j0 + j
			i++
			j++
		case length[i+1][j] >= length[i][j+1]:
			i++
		default:
			j++
		}
	}
}

// pairGaps pairs the items between two that are the same one, where both lists
// have equally many: without a key, an item changed in place is the likeliest
// reading, and comparing inside keeps what this build does not know of it.
func pairGaps(pairs []int, i0, i1, j0, j1 int) {
	for i := i0; i < i1; {
		if pairs[i] >= 0 {
			j0 = pairs[i] + 1
			i++
			continue
		}
		end, next := i, j1
		for end < i1 && pairs[end] < 0 {
			end++
		}
		if end < i1 {
			next = pairs[end]
		}
		if end-i == next-j0 {
			for k := i; k < end; k++ {
				pairs[k] = j0 + k - i
			}
		}
		i = end
	}
}
