package admit

import "strings"

// CELList returns a CEL expression for the list at a path such as
// object.spec.containers, which is an empty list where anything on the way is
// absent or null. Conditions must not fail for any object, and has alone fails
// for one whose parent is not there.
func CELList(path string) string { return CELValue(path, "[]") }

// CELValue is CELList for any value at a path such as object.spec.nodeName, which
// is the CEL given for otherwise where anything on the way is absent or null.
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

// CELStrings returns a CEL list of texts in which there is nothing to escape, such as
// names.
func CELStrings[S ~string](list []S) string {
	quoted := make([]string, 0, len(list))
	for _, s := range list {
		quoted = append(quoted, "'"+string(s)+"'")
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
