//go:build lint

// Package lint_test plants imports that the rules of .golangci.yml must refuse, and requires the linter to refuse them. It also
// requires that comments silence only linters that are on.
package lint_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const module = "github.com/postern-dev/postern"

var linter = flag.String("linter", "", "the absolute `path` of golangci-lint")

// planted has the folders of the planted files, each with the rules that hold there. Those of the plugins are added.
var planted = map[string][]string{
	"cmd/postern/app":     {"product"},
	"internal/conditions": nil,
	"internal/edges":      {"product", "internal"},
	"internal/patch":      {"product", "internal", "patch"},
	"pkg/admissions/pods/initialresources/internal/usage": {"product", "internal"},
	"pkg/admit":           {"product", "admit"},
	"pkg/admit/admittest": nil,
	"pkg/admit/dispatch":  {"product", "admit"},
	"pkg/certs":           {"product", "certs"},
	"pkg/registration":    {"product", "registration"},
	"pkg/router":          {"product", "router"},
	"test/gate":           nil,
}

// refused has imports that the linter must refuse whatever the rules say.
var refused = []struct{ rule, folder, imported string }{
	{"product", "cmd/postern/app", "k8s.io/kubernetes/pkg/apis/core"},
	{"certs", "pkg/certs", module + "/pkg/router"},
	{"router", "pkg/router", module + "/pkg/admit"},
	{"registration", "pkg/registration", module + "/pkg/certs"},
	{"admit", "pkg/admit", module + "/pkg/admissions"},
	{"internal", "internal/edges", module + "/pkg/router"},
	{"patch", "internal/patch", module + "/pkg/admit"},
	{"plugins", "pkg/admissions/pods/limitranger", module + "/pkg/admissions/pods/alwayspullimages"},
	{"plugins", "pkg/admissions/pods/limitranger", module + "/pkg/router"},
}

// A rule is a rule of the linter depguard.
type rule struct {
	Deny  []struct{ Pkg string }
	Allow []string
}

// refuses says whether the rule means to refuse an import. depguard looks only at the last entry that sorts before the
// import, so an entry can hide another one.
func (r rule) refuses(imported string) bool {
	within := func(entry string) bool { return strings.HasPrefix(imported+"/", entry+"/") }
	for _, d := range r.Deny {
		if within(d.Pkg) {
			return !slices.ContainsFunc(r.Allow, within)
		}
	}
	return false
}

// A place is a planted file and a rule.
type place struct{ file, rule string }

func TestRules(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	plugins, err := filepath.Glob(filepath.Join(root, "pkg/admissions/*/*/README.md"))
	if err != nil || len(plugins) < 40 {
		t.Fatalf("Got %d plugins and error %v, want all", len(plugins), err)
	}
	for _, readme := range plugins {
		folder, err := filepath.Rel(root, filepath.Dir(readme))
		if err != nil {
			t.Fatal(err)
		}
		planted[filepath.ToSlash(folder)] = []string{"product", "plugins"}
	}
	config := filepath.Join(root, ".golangci.yml")
	rules := readRules(t, config)
	packages := imports(t, root, rules)
	want := map[place][]string{}
	for folder, names := range planted {
		for _, name := range names {
			p := place{folder + "/planted.go", name}
			want[p] = slices.DeleteFunc(visible(folder, packages), func(imported string) bool { return !rules[name].refuses(imported) })
		}
	}
	got := lint(t, plant(t, packages), config)
	all := maps.Clone(want)
	maps.Copy(all, got)
	for p := range all {
		if passed := without(want[p], got[p]); len(passed) > 0 {
			t.Errorf("Rule %s lets %s import %s", p.rule, p.file, strings.Join(passed, ", "))
		}
		if extra := without(got[p], want[p]); len(extra) > 0 {
			t.Errorf("Rule %s does not let %s import %s", p.rule, p.file, strings.Join(extra, ", "))
		}
		if len(got[p]) > 0 {
			delete(rules, p.rule)
		}
	}
	for name := range rules {
		t.Errorf("Rule %s refuses nothing in the planted files", name)
	}
	for _, r := range refused {
		if !slices.Contains(got[place{r.folder + "/planted.go", r.rule}], r.imported) {
			t.Errorf("Rule %s must not let %s import %s", r.rule, r.folder, r.imported)
		}
	}
}

func readRules(t *testing.T, config string) map[string]rule {
	t.Helper()
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	var c struct {
		Linters struct {
			Settings struct {
				Depguard struct{ Rules map[string]rule }
			}
		}
	}
	if err := yaml.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	return c.Linters.Settings.Depguard.Rules
}

// imports returns the packages of this module, those that the rules name, and a package below each of these.
func imports(t *testing.T, root string, rules map[string]rule) []string {
	t.Helper()
	packages := strings.Fields(string(run(t, root, "go", "list", "./...")))
	for _, r := range refused {
		packages = append(packages, r.imported)
	}
	for name, r := range rules {
		entries := slices.Clone(r.Allow)
		for _, d := range r.Deny {
			entries = append(entries, d.Pkg)
		}
		for _, entry := range entries {
			packages = append(packages, entry)
			if strings.Contains(entry, ".") { // The standard library has no dot, and gets no package.
				packages = append(packages, entry+"/zz") // It sorts after each entry that could hide this one.
			}
			folder, ours := strings.CutPrefix(entry, module)
			if _, err := os.Stat(filepath.Join(root, folder)); ours && err != nil {
				t.Errorf("Rule %s names %s, which does not exist", name, entry)
			}
		}
	}
	slices.Sort(packages)
	return slices.Compact(packages)
}

// visible returns the packages that the go command lets a package in the folder import.
func visible(folder string, packages []string) []string {
	return slices.DeleteFunc(slices.Clone(packages), func(imported string) bool {
		i := strings.LastIndex(imported+"/", "/internal/")
		return i >= 0 && !strings.HasPrefix(path.Join(module, folder)+"/", imported[:i]+"/")
	})
}

// plant writes a module with the path of this one, empty packages, and the planted files. The files for pkg/certs are in
// pkg/certs/planted/pkg/certs. The rules of pkg/certs match this folder, and the packages internal to pkg/certs are visible
// there. No package imports it, so there are no cycles.
func plant(t *testing.T, packages []string) string {
	t.Helper()
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	mod := "module " + module + "\n\ngo 1.26\n"
	for _, p := range packages {
		if folder, ours := strings.CutPrefix(p, module); ours {
			write(path.Join(folder, "stub.go"), "package stub\n")
		} else if strings.Contains(p, ".") { // Each package of another project is a module of its own.
			write(path.Join("others", p, "go.mod"), "module "+p+"\n")
			write(path.Join("others", p, "stub.go"), "package stub\n")
			mod += fmt.Sprintf("require %s v0.0.0\nreplace %[1]s => ./others/%[1]s\n", p)
		}
	}
	write("go.mod", mod)
	for folder := range planted {
		text := "package planted\n"
		for _, p := range visible(folder, packages) {
			text += fmt.Sprintf("import _ %q\n", p)
		}
		write(path.Join(folder, "planted", folder, "planted.go"), text)
		write(path.Join(folder, "planted", folder, "planted_test.go"), text)
	}
	return root
}

var message = regexp.MustCompile(`^import '(.+)' is not allowed from list '(.+?)'`)

// lint returns what the linter refuses in a module.
func lint(t *testing.T, root, config string) map[place][]string {
	t.Helper()
	if *linter == "" {
		t.Fatal("Set -linter to the path of golangci-lint, or run make lint")
	}
	t.Setenv("GOWORK", "off")
	t.Setenv("GOLANGCI_LINT_CACHE", t.TempDir())
	out := run(t, root, *linter, "run", "--allow-parallel-runners", "--config", config, "--enable-only=depguard", "--issues-exit-code=0",
		"--max-issues-per-linter=0", "--max-same-issues=0", "--uniq-by-line=false", "--output.json.path=stdout", "--show-stats=false", "./...")
	var report struct {
		Issues []struct {
			Text string
			Pos  struct{ Filename string }
		}
	}
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	found := map[place][]string{}
	for _, issue := range report.Issues {
		m := message.FindStringSubmatch(issue.Text)
		if m == nil {
			t.Fatalf("%s: %s", issue.Pos.Filename, issue.Text)
		}
		_, file, _ := strings.Cut(issue.Pos.Filename, "/planted/")
		p := place{file, m[2]}
		found[p] = append(found[p], m[1])
	}
	return found
}

func run(t *testing.T, folder, name string, args ...string) []byte {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	c.Dir, c.Stderr = folder, t.Output()
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s: %v", c, err)
	}
	return out
}

func without(list, others []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(others, s) })
}

var silenced = regexp.MustCompile(`//nolint:([a-z,]+)`)

// TestNolint requires that every linter that a comment of a Go file silences is enabled. nolintlint reports only those that are.
func TestNolint(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, ".golangci.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var c struct {
		Linters struct{ Enable []string }
	}
	if err := yaml.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	found := 0
	err = filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(file) != ".go" {
			return err
		}
		text, err := os.ReadFile(file)
		for _, m := range silenced.FindAllSubmatch(text, -1) {
			for name := range strings.SplitSeq(string(m[1]), ",") {
				found++
				if !slices.Contains(c.Linters.Enable, name) {
					t.Errorf("%s: a comment silences %s, which is off", file, name)
				}
			}
		}
		return err
	})
	if err != nil || found < 10 {
		t.Errorf("Found %d linters in comments, and error %v, want at least 10", found, err)
	}
}
