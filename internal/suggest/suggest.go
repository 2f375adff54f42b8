// Package suggest finds the name that the author of a misspelt name meant.
package suggest

import (
	"cmp"
	"slices"
	"strings"

	"github.com/agext/levenshtein"
)

// maxDistance is the largest edit distance between a misspelt name and the suggested name.
const maxDistance = 5

// Name returns the most similar of the names, or "" if none is similar. The case is ignored. The distance to a similar name is at
// most half the length of the shorter of the two: config is not similar to kubeconfig.
func Name(misspelt string, names []string) string {
	misspelt = strings.ToLower(strings.TrimSpace(misspelt))
	distance := func(name string) int {
		return levenshtein.Distance(misspelt, strings.ToLower(name), nil)
	}
	var similar []string
	for _, name := range names {
		if distance(name) <= min(maxDistance, min(len(misspelt), len(name))/2) {
			similar = append(similar, name)
		}
	}
	if len(similar) == 0 {
		return ""
	}
	return slices.MinFunc(similar, func(a, b string) int { return cmp.Compare(distance(a), distance(b)) })
}

// ByWords returns the shortest of the names that have all words of an incomplete name in its order. Hyphens and underscores end a
// word, and the case is ignored. The last words must be equal, because the words before them only describe them. A last word "file"
// may be missing.
func ByWords(incomplete string, names []string) []string {
	want := words(incomplete)
	if len(want) == 0 {
		return nil
	}
	length := func(name string) int { return len(words(name)) }
	var complete []string
	for _, name := range names {
		has := words(name)
		if n := len(has) - 1; n > 0 && has[n] == "file" && want[len(want)-1] != "file" {
			has = has[:n]
		}
		if inOrder(want, has) && has[len(has)-1] == want[len(want)-1] {
			complete = append(complete, name)
		}
	}
	return slices.DeleteFunc(slices.Clone(complete), func(name string) bool {
		return slices.ContainsFunc(complete, func(other string) bool { return length(other) < length(name) })
	})
}

func words(name string) []string {
	return strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return r == '-' || r == '_' })
}

// inOrder reports whether all has the words in their order, with any others between them.
func inOrder(words, all []string) bool {
	for _, word := range all {
		if len(words) > 0 && words[0] == word {
			words = words[1:]
		}
	}
	return len(words) == 0
}
