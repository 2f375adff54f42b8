package patch

import (
	"slices"
	"sort"
)

// maxMatches bounds the pairs of equal items that align looks at. Beyond it, the
// first of several equal items can only become the first of those after the
// change, the second one the second, and so on.
const maxMatches = 1 << 18

// alignment says which item before the change became which item after it.
type alignment struct {
	// became has, for each item before the change, the index of the same item after
	// it, or -1 if the item was removed or moved. The indexes ascend.
	became []int
	// origin has, for each item after the change, the index of the same item before
	// it, or -1 if the item is new.
	origin []int
}

// stayed reports whether item j after the change did not move.
func (al alignment) stayed(j int) bool { return al.origin[j] >= 0 && al.became[al.origin[j]] == j }

// align keeps as many items as possible where they are.
func align(l list, id identity) alignment {
	al := alignment{became: longestCommon(id), origin: filled(len(id.after), -1)}
	for i, j := range al.became {
		if j >= 0 {
			al.origin[j] = i
		}
	}
	al.addMoved(id)
	if !id.keyed {
		al.pairGaps(l)
	}
	return al
}

// addMoved finds the origins of items that moved.
func (al alignment) addMoved(id identity) {
	left := map[int][]int{} // The items before the change that did not stay, by their numbers.
	for i, n := range id.before {
		if al.became[i] < 0 {
			left[n] = append(left[n], i)
		}
	}
	for j, n := range id.after {
		if al.origin[j] < 0 && len(left[n]) > 0 {
			al.origin[j], left[n] = left[n][0], left[n][1:]
		}
	}
}

// pairGaps pairs items that are removed with items that are new, where as many are
// removed as are new between two items that stayed. A changed item is the
// likeliest reading, and makes a small patch. An item with a field that this build
// does not know is not paired: the new item may be another one.
func (al alignment) pairGaps(l list) {
	moved := filled(len(al.became), false)
	for j, i := range al.origin {
		if i >= 0 && !al.stayed(j) {
			moved[i] = true
		}
	}
	from, to := 0, 0
	for i := 0; i <= len(al.became); i++ {
		next := len(al.origin)
		if i < len(al.became) {
			if next = al.became[i]; next < 0 {
				continue
			}
		}
		if i-from == next-to && !slices.Contains(moved[from:i], true) && !slices.ContainsFunc(al.origin[to:next], isOrigin) {
			for k := range i - from {
				if !l.unknown(from + k) {
					al.became[from+k], al.origin[to+k] = to+k, from+k
				}
			}
		}
		from, to = i+1, next+1
	}
}

func isOrigin(i int) bool { return i >= 0 }

func filled[T any](n int, v T) []T { return slices.Repeat([]T{v}, n) }

// longestCommon returns, for each item before the change, the index after it of an
// item with the same number, or -1. The indexes ascend, and as many items as
// possible have one.
func longestCommon(id identity) []int {
	n, m := len(id.before), len(id.after)
	out := filled(n, -1)
	start := 0
	for start < min(n, m) && id.before[start] == id.after[start] {
		out[start] = start
		start++
	}
	end := 0
	for end < min(n, m)-start && id.before[n-1-end] == id.after[m-1-end] {
		out[n-1-end] = m - 1 - end
		end++
	}
	if n > start+end && m > start+end {
		for p := longestPath(id.before[start:n-end], id.after[start:m-end]); p != nil; p = p.previous {
			out[start+p.before] = start + p.after
		}
	}
	return out
}

// match is a pair of items with the same number that ends a common subsequence of
// two lists.
type match struct {
	before, after int
	previous      *match
}

// longestPath returns the last match of a longest common subsequence of two lists
// of numbers. It takes O(m log m) for m pairs of items with the same number (the
// algorithm of Hunt and Szymanski). If no list has a number twice, that is a
// longest increasing subsequence of the indexes.
func longestPath(before, after []int) *match {
	places := map[int][]int{}
	for j, n := range after {
		places[n] = append(places[n], j)
	}
	matches := 0
	for _, n := range before {
		matches += len(places[n])
	}
	seen := map[int]int{}
	ends := []*match{nil} // For each length, the match with the least index in after that ends a subsequence.
	for i, n := range before {
		candidates := places[n]
		if matches > maxMatches {
			candidates = candidates[min(seen[n], len(candidates)):min(seen[n]+1, len(candidates))]
			seen[n]++
		}
		for _, j := range slices.Backward(candidates) {
			k := 1 + sort.Search(len(ends)-1, func(k int) bool { return ends[k+1].after >= j })
			if m := (&match{i, j, ends[k-1]}); k == len(ends) {
				ends = append(ends, m)
			} else {
				ends[k] = m
			}
		}
	}
	return ends[len(ends)-1]
}
