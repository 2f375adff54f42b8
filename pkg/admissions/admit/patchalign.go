package admit

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
)

// maxAlignment bounds the table that two lists are aligned by, the product of
// how many items of each are not in the same place. Beyond it a list is replaced
// as a whole.
const maxAlignment = 1 << 20

// identity gives the items of two lists numbers. Those that are the same one have
// the same number.
type identity struct {
	b, a []int
	// keyed says that an item is the same one whatever changes in it.
	keyed bool
}

// identify goes by the merge key where that tells the items of each list apart.
// Service ports, for one, have keys that two protocols share. Otherwise equal
// items are the same ones.
func (w *walk) identify(b, a reflect.Value, mergeKey string) (identity, error) {
	if key := w.fields.named(b.Type().Elem(), mergeKey); key != nil {
		numbers := map[any]int{}
		before, unique1 := number(numbers, b, key)
		after, unique2 := number(numbers, a, key)
		if unique1 && unique2 {
			return identity{b: before, a: after, keyed: true}, nil
		}
	}
	numbers := map[string]int{}
	before, err := numberEncoded(numbers, b)
	if err != nil {
		return identity{}, err
	}
	after, err := numberEncoded(numbers, a)
	return identity{b: before, a: after}, err
}

// number numbers items by a field. They are unique if no two have the same
// number, and the field is one to tell items by.
func number(numbers map[any]int, list reflect.Value, key []int) (out []int, unique bool) {
	seen := map[int]bool{}
	for i := range list.Len() {
		k := list.Index(i).FieldByIndex(key)
		if !k.Comparable() || k.Kind() == reflect.Pointer {
			return nil, false
		}
		n := numberOf(numbers, k.Interface())
		if seen[n] {
			return nil, false
		}
		seen[n] = true
		out = append(out, n)
	}
	return out, true
}

func numberEncoded(numbers map[string]int, list reflect.Value) ([]int, error) {
	var out []int
	for i := range list.Len() {
		data, err := json.Marshal(list.Index(i).Addr().Interface())
		if err != nil {
			return nil, fmt.Errorf("item %d: %w", i, err)
		}
		out = append(out, numberOf(numbers, string(data)))
	}
	return out, nil
}

func numberOf[K comparable](numbers map[K]int, key K) int {
	n, ok := numbers[key]
	if !ok {
		n = len(numbers)
		numbers[key] = n
	}
	return n
}

// origin returns the index of an item before the change that became item j and
// is not accounted for by used, or -1.
func (id identity) origin(j int, used []bool) int {
	for i, v := range slices.Backward(id.b) {
		if !used[i] && v == id.a[j] {
			return i
		}
	}
	return -1
}

// align returns for each item before the change the index of the item that it
// became in its place, or -1. The indexes ascend. It is false for lists that are
// too long to tell.
func (id identity) align() ([]int, bool) {
	if pairs, ok := id.inPlace(); ok {
		return pairs, true
	}
	n, m := len(id.b), len(id.a)
	pairs := make([]int, n)
	for i := range pairs {
		pairs[i] = -1
	}
	start := 0
	for start < n && start < m && id.b[start] == id.a[start] {
		pairs[start] = start
		start++
	}
	end := 0
	for end < n-start && end < m-start && id.b[n-1-end] == id.a[m-1-end] {
		pairs[n-1-end] = m - 1 - end
		end++
	}
	if (n-end-start)*(m-end-start) > maxAlignment {
		return nil, false
	}
	longestCommon(pairs[start:n-end], id.b[start:n-end], id.a[start:m-end], start)
	if !id.keyed {
		id.pairGaps(pairs)
	}
	return pairs, true
}

// inPlace pairs each item with the one in its place, where the lists are equally
// long and nothing moved: without a key, items changed in place are the likeliest
// reading, even if one became like its neighbour.
func (id identity) inPlace() ([]int, bool) {
	if id.keyed || len(id.b) != len(id.a) {
		return nil, false
	}
	same, all := make([]int, len(id.b)), make([]int, len(id.b))
	for i := range all {
		same[i], all[i] = -1, i
		if id.b[i] == id.a[i] {
			same[i] = i
		}
	}
	return all, len(id.moved(same)) == 0
}

// longestCommon pairs a longest common subsequence of b and a, whose first item
// has the index offset.
func longestCommon(pairs, b, a []int, offset int) {
	n, m := len(b), len(a)
	if n == 0 || m == 0 {
		return
	}
	length := make([]int32, (n+1)*(m+1))
	at := func(i, j int) *int32 { return &length[i*(m+1)+j] }
	for i := n - 1; i >= 0; i-- {
		for j := m - 1; j >= 0; j-- {
			if b[i] == a[j] {
				*at(i, j) = *at(i+1, j+1) + 1
			} else {
				*at(i, j) = max(*at(i+1, j), *at(i, j+1))
			}
		}
	}
	for i, j := 0, 0; i < n && j < m; {
		switch {
		case b[i] == a[j]:
			pairs[i] = offset + j
			i++
			j++
		case *at(i+1, j) >= *at(i, j+1):
			i++
		default:
			j++
		}
	}
}

// pairGaps pairs the items between two that are the same one, where both lists
// have equally many and none of them moved: without a key, an item changed in
// place is the likeliest reading, and comparing inside keeps what this build does
// not know of it.
func (id identity) pairGaps(pairs []int) {
	moved := id.moved(pairs)
	for i, j0 := 0, 0; i < len(pairs); {
		if pairs[i] >= 0 {
			j0 = pairs[i] + 1
			i++
			continue
		}
		end, next := i, len(id.a)
		for end < len(pairs) && pairs[end] < 0 {
			end++
		}
		if end < len(pairs) {
			next = pairs[end]
		}
		isMoved := func(n int) bool { return moved[n] }
		if end-i == next-j0 && !slices.ContainsFunc(id.b[i:end], isMoved) && !slices.ContainsFunc(id.a[j0:next], isMoved) {
			for k := i; k < end; k++ {
				pairs[k] = j0 + k - i
			}
		}
		i = end
	}
}

// moved returns the numbers of items that are in both lists, but not in pairs.
func (id identity) moved(pairs []int) map[int]bool {
	left, kept := map[int]bool{}, map[int]bool{}
	for i, j := range pairs {
		if j < 0 {
			left[id.b[i]] = true
		} else {
			kept[j] = true
		}
	}
	out := map[int]bool{}
	for j, n := range id.a {
		if !kept[j] && left[n] {
			out[n] = true
		}
	}
	return out
}
