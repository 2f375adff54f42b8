package yamltree_test

import (
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/yamltree"
)

const document = `a: 1
list:
- name: x
  labels:
    example.com/a.b: c
    example.com/a: {b: d}
- name: y
base: &base
  deep: [1, 2]
copy:
  <<: *base
  other: *base
`

func parse(t *testing.T, text string) *yamltree.Tree {
	t.Helper()
	tree, err := yamltree.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func TestFind(t *testing.T) {
	tree := parse(t, document)
	for path, want := range map[string]yamltree.Field{
		"":                                {Exists: true},
		"a":                               {Line: 1, Exists: true},
		"list[1]":                         {Line: 7, Exists: true},
		"list[1].name":                    {Line: 7, Exists: true},
		"list[0].labels.example.com/a.b":  {Line: 5, Exists: true},
		"list[0].labels[example.com/a.b]": {Line: 5, Exists: true},
		"list[0].labels[example.com/a].b": {Line: 6, Exists: true},
		"list[2].name":                    {Line: 2},
		"list[0].missing":                 {Line: 3},
		"list.name":                       {Line: 2},
		"a.b":                             {Line: 1},
		"missing":                         {},
		"copy.other.deep[1]":              {Line: 9, Exists: true},
	} {
		got := tree.Find(path)
		if got.Line != want.Line || got.Exists != want.Exists {
			t.Errorf("%s: got line %d, exists %v; want %d, %v", path, got.Line, got.Exists, want.Line, want.Exists)
		}
	}
}

// TestRemove checks that paths and lines stay those of the file when fields are removed.
func TestRemove(t *testing.T) {
	tree := parse(t, document)
	if tree.Remove(tree.Find("missing")) {
		t.Error("The root was removed")
	}
	for _, path := range []string{"a", "list[0]", "copy"} {
		if !tree.Remove(tree.Find(path)) {
			t.Errorf("%s was not removed", path)
		}
	}
	text, err := tree.Text()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(text), "list:\n    - name: y\nbase:\n    deep: [1, 2]\n"; got != want {
		t.Errorf("Got\n%s\nwant\n%s", got, want)
	}
	for path, want := range map[string]string{"list[0].name": "list[1].name", "list[0].missing.a[2]": "list[1].missing.a[2]"} {
		if got := tree.Find(path); got.Path != want || got.Line != 7 {
			t.Errorf("Got path %s and line %d, want %s and 7", got.Path, got.Line, want)
		}
	}
	// The closest parent goes if the field is missing.
	if !tree.Remove(tree.Find("list[0].missing")) || tree.Find("list[0]").Exists {
		t.Error("The parent of a missing field is still there")
	}
}

func TestSub(t *testing.T) {
	tree := parse(t, document)
	sub, ok := tree.Sub("list[1]")
	if !ok || sub.Line() != 7 || sub.Find("name").Path != "name" || sub.Find("name").Line != 7 {
		t.Errorf("Got %v and line %d", ok, sub.Line())
	}
	sub.Remove(sub.Find("name"))
	if tree.Find("list[1].name").Exists {
		t.Error("The field is still in the whole document")
	}
	if _, ok := tree.Sub("list[5]"); ok {
		t.Error("Got a tree of a missing value")
	}
}

func TestDuplicates(t *testing.T) {
	tree := parse(t, "a: 1\nb: {c: 1, c: 2}\na: 2\nl:\n- {d: 1}\n- d: 1\n  d: 2\n  d: 3\n")
	var got []string
	for _, f := range tree.Duplicates() {
		got = append(got, f.Path+"="+f.Key)
	}
	if got, want := strings.Join(got, ", "), "b.c=c, a=a, l[1].d=d, l[1].d=d"; got != want {
		t.Errorf("Got %s, want %s", got, want)
	}
	if len(tree.Duplicates()) > 0 {
		t.Error("Got duplicates after they were removed")
	}
}

func TestContains(t *testing.T) {
	for _, c := range []struct {
		outer, inner string
		want         bool
	}{{"a", "a", true}, {"a", "a.b", true}, {"a", "a[0]", true}, {"", "a", true}, {"a", "ab", false}, {"a.b", "a", false}} {
		if got := yamltree.Contains(c.outer, c.inner); got != c.want {
			t.Errorf("%q in %q: got %v", c.inner, c.outer, got)
		}
	}
}

// TestHostileDocuments covers aliases that stand for each other, and for far more than memory holds.
func TestHostileDocuments(t *testing.T) {
	bomb := "a: &a [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]\n"
	for c := 'b'; c <= 'j'; c++ {
		bomb += string(c) + ": &" + string(c) + " [" + strings.TrimSuffix(strings.Repeat("*"+string(c-1)+", ", 10), ", ") + "]\n"
	}
	for name, text := range map[string]string{
		"a bomb": bomb, "an alias of itself": "a: &a [*a]\n", "nothing": "", "a comment": "# a\n", "no YAML": "a: [", "an unknown alias": "a: *b\n",
	} {
		if _, err := yamltree.Parse([]byte(text)); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}
