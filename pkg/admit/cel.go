package admit

import (
	"fmt"
	"strings"
)

// CELList returns a CEL expression for the list at a path such as
// object.spec.containers, which is an empty list where anything on the way is
// absent or null. Conditions must not fail for any object, and has alone fails
// for one whose parent is not there.
func CELList(path string) string { return CELValue(path, "[]") }

// CELValue is CELList for any value at a path such as object.spec.nodeName, which
// is the CEL given for otherwise where anything on the way is absent or null. Neither may come from a configuration.
func CELValue(path, otherwise string) string {
	root, rest, _ := strings.Cut(path, ".")
	guards := []string{root + " != null"}
	steps := strings.Split(rest, ".")
	for i := range steps {
		at := root + "." + strings.Join(steps[:i+1], ".")
		guards = append(guards, "has("+at+")", at+" != null")
	}
	return "(" + strings.Join(guards, " && ") + " ? " + path + " : " + otherwise + ")"
}

// celEscapes replaces what CEL does not allow in a text in single quotes.
var celEscapes = strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\n", `\n`, "\r", `\r`)

// CELString returns a CEL literal for a text, which may come from a configuration. CEL reads a byte that is not UTF-8 as
// U+FFFD.
func CELString[S ~string](s S) string { return "'" + celEscapes.Replace(string(s)) + "'" }

// CELStrings returns a CEL list of texts.
func CELStrings[S ~string](list []S) string {
	quoted := make([]string, 0, len(list))
	for _, s := range list {
		quoted = append(quoted, CELString(s))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

const (
	// maxCELItems bounds the loops of conditions. A loop over the 40,000 items that fit into an object takes the API
	// server 10 seconds, and the API server refuses a request whose conditions exceed its cost budget.
	maxCELItems = 250
	// maxCELNested bounds a loop in a loop.
	maxCELNested = 16
)

// CELAny returns a CEL expression that is true if the predicate holds for an item of a list or for a key of a map, or if
// there are more than maxCELItems items, so that the API server calls. It must not be negated.
func CELAny(list, item, predicate string) string {
	return celAtMost(maxCELItems, list) + list + ".exists(" + item + ", " + predicate + "))"
}

// CELAnyNested is CELAny in the predicate of another CELAny.
func CELAnyNested(list, item, predicate string) string {
	return celAtMost(maxCELNested, list) + list + ".exists(" + item + ", " + predicate + "))"
}

// CELNone returns a CEL expression that is true if the predicate holds for no item of a list, or beyond maxCELItems items.
func CELNone(list, item, predicate string) string {
	return celAtMost(maxCELItems, list) + "!" + list + ".exists(" + item + ", " + predicate + "))"
}

// CELDiffer returns a CEL expression that is true if the values of the items of two lists differ, in any value or in
// their order, or beyond maxCELItems items.
func CELDiffer(list, other, item, value string) string {
	values := func(list string) string { return list + ".map(" + item + ", " + value + ")" }
	return celAtMost(maxCELItems, list, other) + values(list) + " != " + values(other) + ")"
}

// CELNew returns a CEL expression that is true if an item of a list is not in the other list, or beyond maxCELItems items.
func CELNew(list, other string) string {
	return celAtMost(maxCELItems, list, other) + list + ".exists(item, !(item in " + other + ")))"
}

// celAtMost returns the beginning of a disjunction that is true where one of the lists has more than so many items.
func celAtMost(items int, lists ...string) string {
	var b strings.Builder
	b.WriteString("(")
	for _, list := range lists {
		fmt.Fprintf(&b, "size(%s) > %d || ", list, items)
	}
	return b.String()
}
