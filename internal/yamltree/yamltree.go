// Package yamltree finds, names and removes the fields of a YAML document, with the lines that they have in the file.
package yamltree

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxNodes is the largest number of nodes of a document after its aliases are replaced. A configuration is far smaller.
const maxNodes = 100_000

var errTooLarge = fmt.Errorf("more than %d values, with what the aliases stand for", maxNodes)

// Tree is a document, or a value in it.
type Tree struct {
	root  *yaml.Node
	line  int
	paths map[*yaml.Node]string
}

// Field is a value in a Tree.
type Field struct {
	// Path is the path of the requested field, such as limits[0].qps. Its indices are those of the document before any
	// field was removed.
	Path string
	// Line is the line of the field in the file, or of its closest existing parent. It is 0 if no parent exists.
	Line int
	// Exists is false if only a parent of the field exists.
	Exists bool

	// Key is the name of the field. Only Duplicates sets it.
	Key string

	parent, value *yaml.Node
}

// Parse returns the first document of a text. It replaces aliases by copies of their values.
func Parse(text []byte) (*Tree, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	if len(document.Content) == 0 {
		return nil, errors.New("the document is empty")
	}
	budget := maxNodes
	root, ok := expanded(document.Content[0], &budget)
	if !ok {
		return nil, errTooLarge
	}
	return newTree(root, root.Line), nil
}

// expanded returns a copy of a value without aliases.
func expanded(n *yaml.Node, budget *int) (*yaml.Node, bool) {
	if *budget--; *budget < 0 {
		return nil, false
	}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	out := *n
	out.Anchor, out.Content = "", make([]*yaml.Node, len(n.Content))
	for i, c := range n.Content {
		var ok bool
		if out.Content[i], ok = expanded(c, budget); !ok {
			return nil, false
		}
	}
	return &out, true
}

func newTree(root *yaml.Node, line int) *Tree {
	t := &Tree{root: root, line: line, paths: map[*yaml.Node]string{}}
	t.name(root, "")
	return t
}

func (t *Tree) name(n *yaml.Node, path string) {
	t.paths[n] = path
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			t.name(n.Content[i+1], Join(path, n.Content[i].Value))
		}
	case yaml.SequenceNode:
		for i, c := range n.Content {
			t.name(c, fmt.Sprintf("%s[%d]", path, i))
		}
	default:
	}
}

// Contains reports whether the path inner equals the path outer or is below it.
func Contains(outer, inner string) bool {
	rest, ok := strings.CutPrefix(inner, outer)
	return ok && (rest == "" || outer == "" || rest[0] == '.' || rest[0] == '[')
}

// Join returns the path of a field of the value at a path.
func Join(path, field string) string {
	if path == "" || strings.HasPrefix(field, "[") {
		return path + field
	}
	if field == "" {
		return path
	}
	return path + "." + field
}

// Line returns the line at which the tree begins in its file.
func (t *Tree) Line() int { return t.line }

// Text returns the tree as YAML.
func (t *Tree) Text() ([]byte, error) { return yaml.Marshal(t.root) }

// Sub returns the value at a path as a Tree whose paths begin at the value. Removing a field from one of the two trees
// also removes it from the other.
func (t *Tree) Sub(path string) (*Tree, bool) {
	f := t.Find(path)
	if !f.Exists {
		return nil, false
	}
	return newTree(f.value, f.Line), true
}

// Find returns the field at a path of the current tree.
func (t *Tree) Find(path string) Field {
	f := Field{value: t.root, Exists: true}
	rest := path
	for rest != "" {
		next, line, after := step(f.value, rest)
		if next == nil {
			f.Exists = false
			break
		}
		f.parent, f.value, f.Line, rest = f.value, next, line, after
	}
	f.Path = Join(t.paths[f.value], strings.TrimPrefix(rest, "."))
	return f
}

// step returns the child of a value at the beginning of a path, its line, and the rest of the path. A key may contain
// dots, so step selects the longest key that matches.
func step(n *yaml.Node, path string) (child *yaml.Node, line int, rest string) {
	switch n.Kind {
	case yaml.MappingNode:
		longest := -1
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			if after, ok := cutKey(path, key.Value); ok && len(key.Value) > longest {
				child, line, rest, longest = n.Content[i+1], key.Line, after, len(key.Value)
			}
		}
	case yaml.SequenceNode:
		for i, c := range n.Content {
			if after, ok := strings.CutPrefix(path, fmt.Sprintf("[%d]", i)); ok {
				return c, c.Line, after
			}
		}
	default:
	}
	return child, line, rest
}

// cutKey removes a key, as .key or as [key], from the start of a path.
func cutKey(path, key string) (string, bool) {
	if after, ok := strings.CutPrefix(path, "["+key+"]"); ok {
		return after, true
	}
	after, ok := strings.CutPrefix(strings.TrimPrefix(path, "."), key)
	return after, ok && (after == "" || after[0] == '.' || after[0] == '[')
}

// Remove removes a field, or its closest existing parent. It returns false for the root, which cannot be removed.
func (t *Tree) Remove(f Field) bool {
	if f.parent == nil {
		return false
	}
	i := slices.Index(f.parent.Content, f.value)
	switch {
	case i < 0:
		// A parent of the field, or another field with the same value, has been removed.
	case f.parent.Kind == yaml.MappingNode:
		f.parent.Content = slices.Delete(f.parent.Content, i-1, i+1)
	default:
		f.parent.Content = slices.Delete(f.parent.Content, i, i+1)
	}
	return true
}

// Duplicates removes the second and later fields of the same key from all mappings, and returns them.
func (t *Tree) Duplicates() []Field {
	var out []Field
	duplicates(t.root, "", &out)
	return out
}

func duplicates(n *yaml.Node, path string, out *[]Field) {
	if n.Kind == yaml.SequenceNode {
		for i, c := range n.Content {
			duplicates(c, fmt.Sprintf("%s[%d]", path, i), out)
		}
	}
	if n.Kind != yaml.MappingNode {
		return
	}
	seen := map[string]bool{}
	var kept []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := Join(path, key.Value)
		if seen[key.Value] {
			*out = append(*out, Field{Path: at, Line: key.Line, Exists: true, Key: key.Value})
			continue
		}
		seen[key.Value] = true
		kept = append(kept, key, value)
		duplicates(value, at, out)
	}
	n.Content = kept
}
