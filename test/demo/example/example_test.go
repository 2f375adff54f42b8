package example_test

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/test/demo/example"
)

const (
	pod   = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n"
	space = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n"
)

func TestParse(t *testing.T) {
	text := `# A pod, in words. The next line is prose too, although it has a colon in it: here.
#
# plugins: Priority, AlwaysPullImages
# config: admission.yaml
# as: bob testers system:masters
# setup: before Postern
# expect: stored
#expect: .spec.containers[*].image = web:1.4 proxy:2.0
# expect:  .metadata.annotations.example\.com/a   =   b = c

` + space + "---\n# Only a comment.\n---\n" + pod
	got, err := example.Parse("01-web", text)
	if err != nil {
		t.Fatal(err)
	}
	want := &example.Example{
		Name: "01-web", Plugins: []string{"Priority", "AlwaysPullImages"}, Config: "admission.yaml",
		As: example.User{Name: "bob", Groups: []string{"testers", "system:masters"}}, Early: true,
		Fields: []example.Field{
			{Path: ".spec.containers[*].image", Want: "web:1.4 proxy:2.0"},
			{Path: `.metadata.annotations.example\.com/a`, Want: "b = c"},
		},
	}
	if len(got.Setup) != 1 || got.Setup[0].Kind() != "Namespace" || got.Request.Kind() != "Pod" || got.Request.Name() != "web" {
		t.Errorf("Setup is %v and the request %v, want a Namespace and the Pod web", got.Setup, got.Request)
	}
	got.Setup, got.Request = nil, example.Document{}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Parsed %+v, want %+v", got, want)
	}
}

func TestParseRefused(t *testing.T) {
	got, err := example.Parse("01-web", `# expect: refused "a \"quoted\" word: and more"`+"\n"+pod)
	if err != nil {
		t.Fatal(err)
	}
	if want := `a "quoted" word: and more`; got.Refused != want {
		t.Errorf("Refused with %q, want %q", got.Refused, want)
	}
}

func TestParseConnection(t *testing.T) {
	got, err := example.Parse("01-web", "# expect: refused \"no\"\n# connect: exec\n# setup: before Postern\n"+pod)
	if err != nil {
		t.Fatal(err)
	}
	if got.Connect != "exec" || len(got.Setup) != 1 || got.Request.Name() != "web" {
		t.Errorf("Parsed %+v, want a connection to the Pod web, which is also the setup", got)
	}
}

func TestParseMistakes(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"no expectation":          {"# A pod.\n" + pod, "no expectation"},
		"only fields":             {"# expect: .spec.a = b\n" + pod, "no expectation"},
		"unknown expectation":     {"# expect: accepted\n" + pod, `line 1: expect: "accepted" is none of`},
		"longer word":             {"# expect: stored.\n" + pod, `"stored." is none of`},
		"empty expectation":       {"# expect:\n" + pod, `"expect" says nothing`},
		"two ends":                {"# expect: stored\n# expect: refused \"no\"\n" + pod, "line 2: expect: it is said twice"},
		"refused without words":   {"# expect: refused\n" + pod, "want refused"},
		"refused with no text":    {"# expect: refused \" \"\n" + pod, "want refused"},
		"refused without quotes":  {"# expect: refused because\n" + pod, "want refused"},
		"refused with fields":     {"# expect: refused \"no\"\n# expect: .spec.a = b\n" + pod, "no fields to look at"},
		"field without value":     {"# expect: stored\n# expect: .spec.a =\n" + pod, "want .a.path = a value"},
		"field without blanks":    {"# expect: stored\n# expect: .spec.a=b\n" + pod, "want .a.path = a value"},
		"field with a bad path":   {"# expect: stored\n# expect: .spec.a[ = b\n" + pod, "line 2: expect: .spec.a["},
		"misspelt word":           {"# expect: stored\n# expcet: .spec.a = b\n" + pod, `line 2: "expcet" is not one of`},
		"capital letter":          {"# Expect: stored\n" + pod, `"Expect" is not one of`},
		"prose with a first word": {"# expect: stored\n# Note: this is no directive\n" + pod, `"Note" is not one of`},
		"below the header":        {"# expect: stored\n" + pod + "# expect: .spec.a = b\n", "line 5: \"expect\" is below"},
		"indented in the object":  {"# expect: stored\n" + pod + "spec: {} \n  # Plugins: A\n", "line 6: \"Plugins\" is below"},
		"second plugins":          {"# expect: stored\n# plugins: A\n# plugins: Bc\n" + pod, `a second "plugins"`},
		"plugins with a gap":      {"# expect: stored\n# plugins: Priority,,\n" + pod, `"" is not a name of a plugin`},
		"config elsewhere":        {"# expect: stored\n# config: ../a.yaml\n" + pod, "not the name of a file"},
		"unknown setup":           {"# expect: stored\n# setup: later\n" + pod, `want "before Postern"`},
		"early without setup":     {"# expect: stored\n# setup: before Postern\n" + pod, "there is no setup"},
		"version with a patch":    {"# expect: stored\n# kubernetes: v1.35.1\n" + pod, "want the oldest version"},
		"unknown connection":      {"# expect: refused \"no\"\n# connect: portforward\n" + pod, `line 2: connect: "portforward", want exec or attach`},
		"connection that works":   {"# expect: stored\n# connect: exec\n" + pod, "has to be refused"},
		"connection to a space":   {"# expect: refused \"no\"\n# connect: exec\n" + pod + "---\n" + space, "the last document is not a Pod"},
		"no object":               {"# expect: stored\n", "there is no object"},
		"only separators":         {"# expect: stored\n---\n---\n", "there is no object"},
		"object without a name":   {"# expect: stored\napiVersion: v1\nkind: Pod\n", "line 2: it has no kind or no name"},
		"field given twice":       {"# expect: stored\n" + pod + "---\n" + pod + "kind: Pod\n", "the document at line 6"},
		"no YAML":                 {"# expect: stored\na: [\n", "the document at line 2"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := example.Parse("01-web", test.text)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Got %v, want an error with %q", err, test.want)
			}
		})
	}
}

func TestParseNamesEveryMistake(t *testing.T) {
	_, err := example.Parse("01-web", "# expect: maybe\n# plugins: -\n")
	for _, want := range []string{"line 1", "line 2", "no expectation", "no object"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Got %v, want an error with %q", err, want)
		}
	}
}

func TestFieldIn(t *testing.T) {
	object := map[string]any{"spec": map[string]any{
		"replicas": int64(2),
		"list":     []any{map[string]any{"a": "x"}, map[string]any{"b": "y"}, map[string]any{"a": "z"}},
	}}
	for path, want := range map[string]string{
		".spec.list[*].a": "x z", ".spec.replicas": "2", ".spec.other": "", ".spec.list[1]": `{"b":"y"}`,
		`.spec.list[?(@.a=="z")].a`: "z",
	} {
		if got, err := (example.Field{Path: path}).In(object); got != want || err != nil {
			t.Errorf("%s is %q, %v; want %q", path, got, err, want)
		}
	}
}

func TestLoad(t *testing.T) {
	set := load(t, map[string]string{
		"02-b.yaml":      "# plugins: Priority, AlwaysPullImages\n# config: admission.yaml\n# expect: stored\n" + pod,
		"01-a.yaml":      "# plugins: Priority\n# expect: stored\n" + pod,
		"admission.yaml": "kind: AdmissionConfiguration\n",
		"README.md":      "# Examples\n",
	})
	if len(set.Examples) != 2 || set.Examples[0].Name != "01-a" || set.Examples[1].Name != "02-b" {
		t.Errorf("Loaded %v, want 01-a and 02-b", set.Examples)
	}
	if got, want := set.Plugins(), []string{"AlwaysPullImages", "Priority"}; !reflect.DeepEqual(got, want) {
		t.Errorf("Plugins are %v, want %v", got, want)
	}
	if got, want := filepath.Base(set.Config()), "admission.yaml"; got != want {
		t.Errorf("The config is %s, want %s", got, want)
	}
	if got, want := set.Examples[1].Lacks([]string{"Priority"}, "v1.37.1"), []string{"AlwaysPullImages"}; !reflect.DeepEqual(got, want) {
		t.Errorf("It lacks %v, want %v", got, want)
	}
}

func TestLacksKubernetes(t *testing.T) {
	e, err := example.Parse("01-web", "# kubernetes: v1.35\n# expect: stored\n"+pod)
	if err != nil {
		t.Fatal(err)
	}
	for version, want := range map[string]int{"v1.9.1": 1, "v1.30.14": 1, "v1.34.9": 1, "v1.35.0": 0, "v1.37.1": 0, "v1.100.0": 0} {
		if got := e.Lacks(nil, version); len(got) != want || want == 1 && got[0] != "Kubernetes v1.35" {
			t.Errorf("With %s it lacks %v", version, got)
		}
	}
}

func TestLoadMistakes(t *testing.T) {
	good := "# expect: stored\n" + pod
	for name, test := range map[string]struct {
		files map[string]string
		want  string
	}{
		"nothing":          {map[string]string{"README.md": ""}, "holds no example"},
		"a bad example":    {map[string]string{"01-a.yaml": pod, "02-b.yaml": good}, "01-a: no expectation"},
		"a bad name":       {map[string]string{"01-a.yaml": good, "1-b.yaml": good}, "1-b.yaml: neither"},
		"another ending":   {map[string]string{"01-a.yaml": good, "02-b.yml": good}, "02-b.yml: neither"},
		"an unused config": {map[string]string{"01-a.yaml": good, "admission.yaml": ""}, "admission.yaml: neither"},
		"a missing config": {map[string]string{"01-a.yaml": "# config: b.yaml\n" + good}, "there is no"},
		"two configs": {map[string]string{
			"01-a.yaml": "# config: x.yaml\n" + good, "02-b.yaml": "# config: y.yaml\n" + good, "x.yaml": "", "y.yaml": "",
		}, "another example's is x.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := example.Load(folder(t, test.files))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Got %v, want an error with %q", err, test.want)
			}
		})
	}
}

// TestExamples finds mistakes in the repository's own examples without a cluster.
func TestExamples(t *testing.T) {
	set, err := example.Load(filepath.Join("..", "..", "..", "examples"))
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join("..", "..", "..", "examples", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range set.Examples {
		if !strings.Contains(string(readme), "("+e.Name+".yaml)") {
			t.Errorf("The README does not mention %s.yaml", e.Name)
		}
	}
}

func load(t *testing.T, files map[string]string) *example.Set {
	t.Helper()
	set, err := example.Load(folder(t, files))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestExamplesHaveImagesOfTheCluster checks that the name of each image contains a registry. Otherwise the pod never runs
// in the cluster of make cluster, because containerd looks for app in the folder library.
func TestExamplesHaveImagesOfTheCluster(t *testing.T) {
	set, err := example.Load(filepath.Join("..", "..", "..", "examples"))
	if err != nil {
		t.Fatal(err)
	}
	image := regexp.MustCompile(`(?m)(?:image|reference): *"?([\w./:@-]+)"?\s*$`)
	for _, e := range set.Examples {
		for _, document := range append(slices.Clone(e.Setup), e.Request) {
			for _, match := range image.FindAllStringSubmatch(document.Text, -1) {
				if registry, _, ok := strings.Cut(match[1], "/"); !ok || !strings.Contains(registry, ".") {
					t.Errorf("%s: the image %s has no registry", e.Name, match[1])
				}
			}
		}
	}
}
