package documents_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/postern-dev/postern/internal/documents"
	"github.com/postern-dev/postern/internal/seed"
)

// a is a document of three lines.
const a = "apiVersion: v1\nkind: A\nmetadata: {name: a}\n"

// TestLines reads the standard input.
func TestLines(t *testing.T) {
	const jsonA = `{"apiVersion": "v1", "kind": "A", "metadata": {"name": "a"}}`
	for name, tc := range map[string]struct{ in, want string }{
		"documents":                 {a + "---\n" + a + "---\n\n# A comment.\n" + a, "1 A a, 5 A a, 11 A a"},
		"documents after ---":       {"---\n" + a + "---\n---\n# A comment.\n---\n" + a, "2 A a, 9 A a"},
		"line ends of Windows":      {strings.ReplaceAll(a+"---\n"+a, "\n", "\r\n"), "1 A a, 5 A a"},
		"a last line of 4096 bytes": {a + "---\n{apiVersion: v1, kind: B, x: " + strings.Repeat("b", 4066) + "}", "1 A a, 5 B "},
		"no line end at the end":    {a + "---\n" + strings.TrimSpace(a), "1 A a, 5 A a"},
		"JSON":                      {"\n" + jsonA + "\n\n" + jsonA + jsonA + "\n---\n" + jsonA, "2 A a, 4 A a, 4 A a, 6 A a"},
		"JSON in several lines":     {"{\n\"apiVersion\": \"v1\",\n\"kind\": \"A\"\n}\n\n{\"apiVersion\":\n\"v1\", \"kind\": \"B\"}\n" + jsonA, "1 A , 6 B , 8 A a"},
		"a list":                    {"# A comment.\napiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: A\n\n- # Another one.\n  apiVersion: v1\n  kind: B\n---\n" + a, "5 A , 9 B , 12 A a"},
		"lists in lists":            {"---\napiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: A}\n- apiVersion: v1\n  kind: BList\n  items:\n  - metadata:\n      name: b\n  -\n    metadata: {name: c}\n", "5 A , 9 B b, 12 B c"},
		"a list with aliases":       {"apiVersion: v1\nkind: List\nx: &x\n- {apiVersion: v1, kind: A}\n- &y\n  apiVersion: v1\n  kind: B\nitems: *x\n---\napiVersion: v1\nkind: List\ny: &y {apiVersion: v1, kind: B}\nitems:\n- *y\n- *y\n", "4 A , 5 B , 14 B , 15 B "},
		"a list that is merged":     {"\n---\napiVersion: v1\nkind: List\n<<:\n  items: [{apiVersion: v1, kind: A}]\n", "3 A "},
		"a list of JSON":            {"\n{\"apiVersion\": \"v1\", \"kind\": \"List\",\n\"items\": [" + jsonA + ",\n\n" + jsonA + ", " + jsonA + "\n]}", "3 A a, 5 A a, 5 A a"},
		"lists of JSON in a list":   {`{"apiVersion": "v1", "kind": "List", "items": [` + "\n" + jsonA + ",\n" + `{"apiVersion": "v1", "kind": "BList", "items":` + "\n[{\"metadata\":\n{}},\n{}]}]}", "2 A a, 4 B , 6 B "},
		"an empty list":             {a + "---\n{apiVersion: v1, kind: List, items: []}\n", "1 A a"},
		"no object of Kubernetes":   {"a: b\n---\n\n- x\n---\nx\n---\n" + a + "---\n[1, 2]\n---\n" + `{"a": "b"} ["c"]`, "8 A a; skipped: 1, 4, 6, 12, 14, 14"},
		"an empty object":           {"{}", "; skipped: 0 it has no objects"},
		"nothing":                   {"---\n# A comment.\n---\n", "; skipped: 0 it has no documents"},
	} {
		t.Run(name, func(t *testing.T) {
			objects, skipped, err := documents.Load([]string{"-", "-"}, strings.NewReader(tc.in))
			var parts, skips []string
			for _, o := range objects {
				parts = append(parts, fmt.Sprintf("%d %s %s", o.Line, o.GetKind(), o.GetName()))
			}
			for _, s := range skipped {
				skips = append(skips, strings.TrimSuffix(fmt.Sprintf("%d %s", s.Line, s.Reason), " it has no apiVersion and no kind"))
			}
			got := strings.Join(parts, ", ")
			if len(skips) > 0 {
				got += "; skipped: " + strings.Join(skips, ", ")
			}
			if got != tc.want || err != nil {
				t.Errorf("Got %q and %v, want %q", got, err, tc.want)
			}
		})
	}
}

// TestErrors reads a document with an error from the second line.
func TestErrors(t *testing.T) {
	const before = "# A comment.\n---\n" + a + "---\n\n" // 7 lines
	nested := "apiVersion: v1\nkind: A\na: &a [" + strings.Repeat("x, ", 10) + "]\n"
	for i := 'a'; i < 'i'; i++ {
		nested += fmt.Sprintf("%c: &%c [%s]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*%c, ", i), 9)+"x")
	}
	few := strings.Join(strings.SplitAfter(nested, "\n")[:7], "")
	for name, tc := range map[string]struct{ in, want string }{
		"a colon too many":         {"a: b\nc: d: e\n", "9: mapping values are not allowed in this context"},
		"no colon":                 {"a: b\nc: d\ne\nf: g\n", "10: could not find expected ':'"},
		"a tab":                    {"a: b\n\tc: d\n", "8: found a tab character that violates indentation"},
		"a wrong indentation":      {"a:\n  - b\n  c: d\n", "9: did not find expected '-' indicator"},
		"an open list":             {"a: b\nc:\n- [d,\n e: f\ng", "10: did not find expected ',' or ']'"},
		"an open mapping":          {"{a: b", "8: did not find expected ',' or '}'"},
		"a template":               {"a: b\nc: {{ .Values.c }}\n", "8: invalid map key: map[interface {}]interface {}{\".Values.c\":interface {}(nil)}"},
		"an unknown anchor":        {"a: b\nc: *d\n", "8: unknown anchor 'd' referenced"},
		"an anchor in itself":      {"a: &a [*a]\n", "8: anchor 'a' value contains itself"},
		"a key twice":              {"a: b\nc: d\na: e\n", `10: key "a" is there twice`},
		"a long key twice":         {strings.Repeat("k", 1000) + ": b\n" + strings.Repeat("k", 1000) + ": c\n", `9: key "` + strings.Repeat("k", 495) + " ..."},
		"a text after the end":     {"a: b\n...\nc: d\ne", "10: after the end of the document: did not find expected <document start>"},
		"a second document":        {"a: b\r---\rc: d", "10: another document follows without a line --- between them"},
		"text behind a separator":  {"a: b\n--- {c: d}\n", "9: invalid Yaml document separator: {c: d}"},
		"NUL":                      {"a: b\nc: \x00d\n", "9: control characters are not allowed"},
		"NUL in JSON":              {"{\"a\":\n\"\x00\"}", "9: control characters are not allowed"},
		"UTF-16":                   {"\xff\xfea\x00", "8: it is not UTF-8"},
		"a byte that is no UTF-8":  {"a: b\nc: ü\nd: \xff\n", "10: it is not UTF-8"},
		"JSON, then a text":        {`{"a": "b"}` + "\n\n garbage", "10: after a JSON value: invalid character 'g' looking for beginning of value"},
		"a JSON field twice":       {"{\"a\": 1,\n\"a\": 2}", `8: duplicate field "a"`},
		"no kind":                  {"# A comment.\napiVersion: v1\n", "9: it has no apiVersion or no kind"},
		"an item without a kind":   {"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: A}\n- a: b\n", "12: it has no apiVersion or no kind"},
		"a part of a list":         {"{apiVersion: v1, kind: List, metadata: {continue: x}, items: []}", "8: the list is not complete, because it has metadata.continue"},
		"a Status":                 {"{apiVersion: v1, kind: Status, message: not today}", `8: the answer of the API server is no object: "not today"`},
		"aliases of aliases":       {nested, "8: it has more than 16 MiB with what its aliases stand for"},
		"fewer aliases of aliases": {few, "8: document contains excessive aliasing"},
		"aliases of a long text":   {"a: &a " + strings.Repeat("x", 1<<18) + "\nb: [" + strings.Repeat("*a, ", 1<<10) + "]\n", "8: it has more than 16 MiB with what its aliases stand for"},
		"a merge of many aliases":  {"a: &a {b: " + strings.Repeat("x", 1<<18) + "}\nb:\n" + strings.Repeat("- {<<: *a}\n", 100), "8: it has more than 16 MiB with what its aliases stand for"},
		"values in values":         {"a: " + strings.Repeat("[", 20_000), "8: exceeded max depth of 10000"},
		"a long line":              {strings.Repeat("#", 17<<20), "7: the document that begins here has more than 16 MiB: write its objects into several documents, such as one file for each namespace"},
		"a long document":          {strings.Repeat("#"+strings.Repeat(" ", 1022)+"\n", 17<<10), "7: the document that begins here has more than 16 MiB: write its objects into several documents, such as one file for each namespace"},
		"a key that JSON lacks":    {"? [a]\n: b\n", "8: invalid map key: []interface {}{\"a\"}"},
		"a number that JSON lacks": {"apiVersion: v1\nkind: A\na: .nan\n", "8: json: unsupported value: NaN"},
		"several mistakes of JSON": {`{"a": 1, "a": 2, "b": 1, "b": 2}`, `8: duplicate field "a", duplicate field "b"`},
		"a kind that is a list":    {"apiVersion: v1\nkind: [A]\n", "8: it has no apiVersion or no kind"},
		"a directive":              {"%YAML 1.2\n---\na: b\n", "8: found incompatible YAML document"},
	} {
		t.Run(name, func(t *testing.T) {
			var start, end runtime.MemStats
			runtime.ReadMemStats(&start)
			objects, _, err := documents.Load([]string{"-"}, strings.NewReader(before+tc.in))
			runtime.ReadMemStats(&end)
			if want := "standard input:" + tc.want; err == nil || err.Error() != want {
				t.Errorf("Got %v, want %s", err, want)
			}
			if len(objects) == 0 || objects[0].Line != 3 {
				t.Errorf("Got %v, want the document before", objects)
			}
			if took := end.TotalAlloc - start.TotalAlloc; took > 160<<20 {
				t.Errorf("It took %d MiB", took>>20)
			}
		})
	}
}

// TestFiles reads files of a folder, in which "# → TARGET" is a symbolic link.
func TestFiles(t *testing.T) {
	const skipped = ": it has no apiVersion and no kind"
	for name, tc := range map[string]struct {
		files map[string]string
		paths string
		// want are the objects, what is skipped, and the errors.
		want []string
	}{
		"a file":                     {map[string]string{"a.txt": a}, "a.txt", []string{"a.txt:1 A"}},
		"in their order":             {map[string]string{"b.yaml": a + "---\n" + a, "a.json": `{"apiVersion": "v1", "kind": "A"}`}, "b.yaml a.json", []string{"b.yaml:1 A", "b.yaml:5 A", "a.json:1 A"}},
		"a folder":                   {map[string]string{"d/b.yml": a, "d/a/c.yaml": a, "d/a.json": a, "d/x.txt": a, "d/.git/x.yaml": a, "d/z/y/x.yaml": a}, "d", []string{"d/a/c.yaml:1 A", "d/a.json:1 A", "d/b.yml:1 A", "d/z/y/x.yaml:1 A"}},
		"a hidden folder":            {map[string]string{".d/a.yaml": a}, ".d/", []string{".d/a.yaml:1 A"}},
		"twice":                      {map[string]string{"d/a.yaml": a, "b.yaml": "# → d/a.yaml"}, "d ./d/a.yaml b.yaml d/../d", []string{"d/a.yaml:1 A"}},
		"two of the same size":       {map[string]string{"d/a.yaml": a, "d/b.yaml": a}, "d", []string{"d/a.yaml:1 A", "d/b.yaml:1 A"}},
		"links":                      {map[string]string{"d/a.yaml": "# → ../e/a.yaml", "d/e": "# → ../e", "e/a.yaml": a, "e/b.yaml": a, "x": "# → d"}, "x", []string{"x/a.yaml:1 A", "x/e/b.yaml:1 A"}},
		"links of a mounted volume":  {map[string]string{"d/a.yaml": "# → ..data/a.yaml", "d/..data": "# → ..2026", "d/..2026/a.yaml": a}, "d", []string{"d/a.yaml:1 A"}},
		"a loop of folders":          {map[string]string{"d/a.yaml": a, "d/e/up": "# → ../..", "d/e/here": "# → ."}, "d", []string{"d/a.yaml:1 A"}},
		"a loop of links":            {map[string]string{"d/a.yaml": "# → b.yaml", "d/b.yaml": "# → a.yaml"}, "d", []string{"d/a.yaml: too many levels of symbolic links", "d/b.yaml: too many levels of symbolic links"}},
		"a link to nothing":          {map[string]string{"d/a.yaml": "# → b.yaml", "d/b": "# → c"}, "d", []string{"d/a.yaml: no such file or directory"}},
		"other documents":            {map[string]string{"d/values.yaml": "# Values.\na: b\n", "d/list.yml": "- a\n", "d/empty.yaml": "", "d/empty.json": "", "d/list.json": `{"apiVersion": "v1", "kind": "List", "items": []}`}, "d", []string{"d/empty.json: it has no documents", "d/empty.yaml: it has no documents", "d/list.json: it has no objects", "d/list.yml:1" + skipped, "d/values.yaml:2" + skipped}},
		"a folder without manifests": {map[string]string{"d/x.txt": a, "d/.git/x.yaml": a, "d/e/f": ""}, "d", []string{"d: it has no manifests"}},
		"no file":                    {nil, "x d/y", []string{"x: no such file or directory", "d/y: no such file or directory"}},
		"a folder that is a file":    {map[string]string{"d": a}, "d/x", []string{"d/x: not a directory"}},
		"broken ones and others":     {map[string]string{"a.yaml": a + "---\n\na: b: c\n---\n" + a, "b.yaml": "{", "c.yaml": a}, "a.yaml b.yaml c.yaml", []string{"a.yaml:1 A", "a.yaml:8 A", "c.yaml:1 A", "a.yaml:6: mapping values are not allowed in this context", "b.yaml:1: did not find expected node content"}},
		"many broken ones":           {map[string]string{"a.yaml": strings.Repeat("{kind: A}\n---\n", 30)}, "a.yaml", append(repeated(20, "a.yaml:%d: it has no apiVersion or no kind"), "and 10 more")},
		"a name with a line end":     {map[string]string{"a\nb": a}, "a\nb", []string{`"a\nb":1 A`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			for file, text := range tc.files {
				target, isLink := strings.CutPrefix(text, "# → ")
				err := os.MkdirAll(filepath.Dir(file), 0o755)
				if isLink && err == nil {
					err = os.Symlink(target, file)
				} else if err == nil {
					err = os.WriteFile(file, []byte(text), 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(loaded(documents.Load(strings.Split(tc.paths, " "), nil)), tc.want); diff != "" {
				t.Errorf("Differs from what is wanted (-got +want):\n%s", diff)
			}
		})
	}
}

// repeated returns the lines of documents of one line.
func repeated(n int, format string) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf(format, 2*i+1))
	}
	return out
}

// loaded returns the objects, what is skipped, and the errors.
func loaded(objects []documents.Object, skipped []documents.Skipped, err error) (out []string) {
	for _, o := range objects {
		out = append(out, fmt.Sprintf("%s %s", o.Position, o.GetKind()))
	}
	for _, s := range skipped {
		out = append(out, fmt.Sprintf("%s: %s", s.Position, s.Reason))
	}
	if err != nil {
		out = append(out, strings.Split(err.Error(), "\n")...)
	}
	return out
}

// TestNoFiles reads what is there and no file. A pipe in a folder, which may have no writer, is not read.
func TestNoFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := errors.Join(syscall.Mkfifo("pipe.yaml", 0o600), os.Mkdir("closed", 0)); err != nil {
		t.Fatal(err)
	}
	paths, want := []string{"", os.DevNull, "."}, []string{
		os.DevNull + ": it has no documents",
		"the name of a file is empty",
		"closed: permission denied",
		"pipe.yaml: it is neither a file nor a folder",
	}
	if os.Geteuid() == 0 { // Root may read each folder.
		want = append(want[:2], want[3])
	}
	if diff := cmp.Diff(loaded(documents.Load(paths, nil)), want); diff != "" {
		t.Errorf("Differs from what is wanted (-got +want):\n%s", diff)
	}
}

// TestLimits reads files of a with a small limit for a document and for all.
func TestLimits(t *testing.T) {
	t.Chdir(t.TempDir())
	copies := "apiVersion: v1\nkind: B\nx: &x 0123456789\ny: [*x, *x, *x, *x, *x]\n"
	for file, text := range map[string]string{"a": a, "b": a + "---\n" + a, "c": copies} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const large = ":%d: the document that begins here has more than %d bytes: write its objects into several documents, such as one file for each namespace"
	const full = ": with it, all files have more than %d bytes: read them in several calls"
	for name, tc := range map[string]struct {
		document, all int
		want          []string
	}{
		"enough":                      {200, 300, []string{"a:1 A", "b:1 A", "b:5 A", "c:1 B"}},
		"as much as they have":        {len(a) + 4, 3*len(a) + 4, []string{"a:1 A", "b:1 A", "b:5 A", "c" + fmt.Sprintf(full, 3*len(a)+4)}},
		"too little for a document":   {len(a) - 1, 300, []string{"a" + fmt.Sprintf(large, 1, len(a)-1), "b" + fmt.Sprintf(large, 1, len(a)-1), "c" + fmt.Sprintf(large, 1, len(a)-1)}},
		"too little for all":          {200, len(a) + 10, []string{"a:1 A", "b" + fmt.Sprintf(full, len(a)+10)}},
		"too little for the aliases":  {len(copies) + 10, 300, []string{"a:1 A", "b:1 A", "b:5 A", fmt.Sprintf("c:1: it has more than %d bytes with what its aliases stand for", len(copies)+10)}},
		"too little with the aliases": {200, 3*len(a) + 4 + len(copies), []string{"a:1 A", "b:1 A", "b:5 A", "c" + fmt.Sprintf(full, 3*len(a)+4+len(copies))}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(loaded(documents.LoadWithin([]string{"a", "b", "c"}, nil, tc.document, tc.all)), tc.want); diff != "" {
				t.Errorf("Differs from what is wanted (-got +want):\n%s", diff)
			}
		})
	}
}

// TestValues compares values with those that sigs.k8s.io/yaml and sigs.k8s.io/json decode.
func TestValues(t *testing.T) {
	scalars := []string{
		"", "~", "null", "Null", "'null'", "y", "Yes", "on", "TRUE", "n", "No", "OFF", "nO", "'on'", "0", "-0", "+1", "1_000", "0x1F", "0X1f", "0o17", "0755", "-010", "08",
		"0b11", "-0b11", "0b2", "1.0", "1.5", "-1.5e-3", "1e3", "1e-9", "1e999", "1.", ".5", "-.5", ".inf", "-.inf", "+.Inf", ".nan", "..", "1.2.3", "100m", "25%", "5Gi", "-a", "10:20", "2001-01-01",
		"2001-12-14T21:59:43.10-05:00", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "18446744073709551615", "18446744073709551616",
		"0xffffffffffffffff", "1e20", "1e21", "123456789012345.6", "<<", "'<<'", "=", "!!str 1", "!!int '1'", "!!float 1", "! 1", "!!binary YQ==", "&x a", `"\u2028\x85\0"`, "'it''s'",
		"[]", "{}", "[a, [b]]", "{a: {b: c}}", "{1: a}", "{true: a}", "{1.5: a}", "{y: a}", "{'y': a}", "{~: a}", "{[a]: b}", "|\n  a\n\n  b\n", ">-\n  a\n  b\n\n  c\n", "a # comment", "a\n  b", "{<<: {a: b}}",
	}
	for _, text := range scalars {
		in := "apiVersion: v1\nkind: A\nx: " + text + "\n"
		var want map[string]any
		out, err := yaml.YAMLToJSON([]byte(in))
		if err == nil {
			err = kjson.UnmarshalCaseSensitivePreserveInts(out, &want)
		}
		for o := range documents.Read(strings.NewReader(in)) {
			if fmt.Sprint(o.Err) != fmt.Sprint(err) {
				t.Errorf("%q: got the error %v, want %v", text, o.Err, err)
			}
			if err == nil && !reflect.DeepEqual(o.Object, want) {
				t.Errorf("%q: got %#v, want %#v", text, o.Object["x"], want["x"])
			}
		}
	}
}

// TestChunks compares random texts with the reader of Kubernetes.
func TestChunks(t *testing.T) {
	random := seed.Chance(t)
	parts := []string{"---", "\n", "\n", "\r\n", "\r", " ", "#", "a", "\n---\n", "--- x", strings.Repeat("b", 4090), "\u0085"}
	for range 2000 {
		var text strings.Builder
		for range random.IntN(12) {
			text.WriteString(parts[random.IntN(len(parts))])
		}
		text.WriteByte('\n') // The reader of Kubernetes loses some last lines without an end.
		got, err := documents.Chunks(strings.NewReader(text.String()))
		var want []string
		r := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text.String())))
		chunk, errWant := r.Read()
		for ; errWant == nil; chunk, errWant = r.Read() {
			want = append(want, string(chunk))
		}
		if !reflect.DeepEqual(got, want) || fmt.Sprint(err) != fmt.Sprint(errWant) {
			t.Fatalf("%q: got %q and %v, want %q and %v", text.String(), got, err, want, errWant)
		}
	}
}

// TestStops wants no more reading after the caller has enough.
func TestStops(t *testing.T) {
	in := io.MultiReader(strings.NewReader(a+"---\n"+a+"---\n"), failing{})
	for o := range documents.Read(bufio.NewReaderSize(in, 16)) {
		if o.Err != nil || o.Number != 1 || string(o.Text) != a {
			t.Errorf("Got document %d, %v: %q", o.Number, o.Err, o.Text)
		}
		break
	}
	var last documents.Object
	for o := range documents.Read(io.MultiReader(strings.NewReader(a+"---\n"+a), failing{})) {
		last = o
	}
	if last.Err == nil || last.Err.Error() != "it failed" || last.Number != 2 {
		t.Errorf("Got document %d, %v", last.Number, last.Err)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("it failed") }
