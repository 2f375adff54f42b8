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

// Name returns the most similar of the names, or "" if none is similar. The case is ignored.
func Name(misspelt string, names []string) string {
	distance := func(name string) int {
		return levenshtein.Distance(strings.ToLower(strings.TrimSpace(misspelt)), strings.ToLower(name), nil)
	}
	var similar []string
	for _, name := range names {
		if distance(name) <= min(maxDistance, len(name)/2) {
			similar = append(similar, name)
		}
	}
	if len(similar) == 0 {
		return ""
	}
	return slices.MinFunc(similar, func(a, b string) int { return cmp.Compare(distance(a), distance(b)) })
}
