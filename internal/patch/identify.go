package patch

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
)

// identity gives each item of two lists a number. Two items with the same number
// are the same item.
type identity struct {
	before, after []int
	// keyed says that the items have a unique key.
	keyed bool
}

// identify goes by the merge key if it is unique in each list. The key of service
// ports, for example, is not: TCP and UDP may share a port. Otherwise equal items
// are the same item, and so are two items that recognize finds.
func (w *walk) identify(l list) (identity, error) {
	if l.key != nil {
		numbers := map[any]int{}
		before, unique1 := numberKeys(numbers, l.before, l.key)
		after, unique2 := numberKeys(numbers, l.after, l.key)
		if unique1 && unique2 {
			return identity{before: before, after: after, keyed: true}, nil
		}
	}
	id, err := w.numberItems(l)
	if err != nil {
		return identity{}, err
	}
	return id, w.recognize(l, id)
}

// numberKeys numbers items by their keys. It reports whether the keys are unique.
func numberKeys(numbers map[any]int, items reflect.Value, key []int) (out []int, unique bool) {
	seen := map[int]bool{}
	for i := range items.Len() {
		n := numberOf(numbers, items.Index(i).FieldByIndex(key).Interface())
		if seen[n] {
			return nil, false
		}
		seen[n] = true
		out = append(out, n)
	}
	return out, true
}

// numberItems numbers items by their encoding. Identical items at the start and at
// the end of both lists are not encoded: each of them is the same item as its
// counterpart, and as no other.
func (w *walk) numberItems(l list) (identity, error) {
	n, m := l.before.Len(), l.after.Len()
	start := 0
	for start < min(n, m) && identical(l.before.Index(start), l.after.Index(start)) {
		start++
	}
	end := 0
	for end < min(n, m)-start && identical(l.before.Index(n-1-end), l.after.Index(m-1-end)) {
		end++
	}
	numbers := map[string]int{}
	number := func(items reflect.Value) ([]int, error) {
		out := make([]int, items.Len())
		for i := range out {
			// The numbers of encodings are not negative.
			if left := len(out) - i; i < start {
				out[i] = -(1 + i)
				continue
			} else if left <= end {
				out[i] = -(start + left)
				continue
			}
			data, err := w.encode(l, items.Index(i))
			if err != nil {
				return nil, err
			}
			out[i] = numberOf(numbers, data)
		}
		return out, nil
	}
	before, err := number(l.before)
	if err != nil {
		return identity{}, err
	}
	after, err := number(l.after)
	return identity{before: before, after: after}, err
}

// encode returns the JSON of an item.
func (w *walk) encode(l list, item reflect.Value) (string, error) {
	if err := w.check(); err != nil {
		return "", fmt.Errorf("comparing %s: %w", l.path, err)
	}
	data, err := json.Marshal(item.Addr().Interface())
	if err != nil {
		return "", fmt.Errorf("encoding an item of %s: %w", l.path, err)
	}
	return string(data), nil
}

// origins returns, for each item after the change, the index of the same item before it, or -1.
func (id identity) origins() []int {
	left := map[int][]int{}
	for i, n := range id.before {
		left[n] = append(left[n], i)
	}
	out := filled(len(id.after), none)
	for j, n := range id.after {
		if len(left[n]) > 0 {
			out[j], left[n] = left[n][0], left[n][1:]
		}
	}
	return out
}

func filled[T any](n int, v T) []T { return slices.Repeat([]T{v}, n) }

func numberOf[K comparable](numbers map[K]int, key K) int {
	n, ok := numbers[key]
	if !ok {
		n = len(numbers)
		numbers[key] = n
	}
	return n
}
