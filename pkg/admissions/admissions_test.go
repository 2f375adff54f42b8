package admissions

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

// member is a plugin and its family.
type member struct {
	*admit.Plugin
	family string
}

// folder is the required folder of the plugin's package.
func (m member) folder() string { return filepath.Join(m.family, strings.ToLower(m.Name)) }

func members() []member {
	var out []member
	for _, f := range Families() {
		for _, p := range f.Plugins {
			out = append(out, member{p, f.Name})
		}
	}
	return out
}

// cases returns the cases of a plugin.
func (m member) cases(t *testing.T) []*admittest.Case {
	t.Helper()
	cases, err := admittest.Load(filepath.Join(m.folder(), "testdata"))
	if err != nil {
		t.Fatalf("Loading the cases: %v", err)
	}
	return cases
}

// own lists the plugins that kube-apiserver never had.
func own() []string {
	return []string{
		"DeletionGate",
		"FleetQuota",
	}
}

func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range members() {
		if seen[m.Name] {
			t.Errorf("There are two plugins %s", m.Name)
		}
		seen[m.Name] = true
		if p, ok := upstreamByName()[m.Name]; (!ok || p.through || p.excuse != "") == !slices.Contains(own(), m.Name) {
			t.Errorf("%s must be either a plugin of kube-apiserver that belongs here, or Postern's own", m.Name)
		}
	}
}

func TestFamilies(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range Families() {
		if seen[f.Name] {
			t.Errorf("There are two families %s", f.Name)
		}
		seen[f.Name] = true
		if len(f.Plugins) == 0 {
			t.Errorf("Family %s has no plugin", f.Name)
		}
	}
}

// TestEveryFamilyHasAService covers families without an enabled plugin: a replica with another configuration
// may have registered them.
func TestEveryFamilyHasAService(t *testing.T) {
	services, err := Families().Services(admit.Deps{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for _, s := range services {
		got = append(got, s.Path)
	}
	for _, f := range Families() {
		want = append(want, "/"+f.Name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("Got the services %v, want %v", got, want)
	}
}

// TestOrder checks the order of the plugins, on which a chain depends.
func TestOrder(t *testing.T) {
	place := map[string]int{}
	for i, p := range upstream() {
		place[p.name] = i
	}
	for _, f := range Families() {
		for i := 1; i < len(f.Plugins); i++ {
			if before, after := f.Plugins[i-1].Name, f.Plugins[i].Name; place[before] > place[after] {
				t.Errorf("Family %s has %s before %s, kube-apiserver after", f.Name, before, after)
			}
		}
	}
}

// TestEveryUpstreamPluginIsAccountedFor fails if a plugin of kube-apiserver is neither implemented nor excused.
func TestEveryUpstreamPluginIsAccountedFor(t *testing.T) {
	for _, p := range upstream() {
		var at []string
		if slices.Contains(Families().Names(), p.name) {
			at = append(at, "a family")
		}
		if p.through {
			at = append(at, "what Postern is called through")
		}
		if p.excuse != "" {
			at = append(at, "what is excused")
		}
		if len(at) != 1 {
			t.Errorf("%s is in %q, want it in one of them", p.name, at)
		}
	}
}

// TestFailuresAreDocumented requires each plugin to be in one row of the table of failures.
func TestFailuresAreDocumented(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## What is a failure in each plugin\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := map[string]int{}
	for line := range strings.Lines(section) {
		if cells := strings.Split(line, "|"); len(cells) > 1 {
			for name := range strings.SplitSeq(cells[1], ",") {
				rows[strings.TrimSpace(name)]++
			}
		}
	}
	for _, m := range members() {
		if rows[m.Name] != 1 {
			t.Errorf("%s is in %d rows, want 1", m.Name, rows[m.Name])
		}
	}
}

// TestFolders checks that each plugin and its test are in the expected folder.
func TestFolders(t *testing.T) {
	for _, m := range members() {
		t.Run(m.Name, func(t *testing.T) {
			pkg := filepath.Base(m.folder())
			source, err := os.ReadFile(filepath.Join(m.folder(), pkg+".go"))
			if err != nil {
				t.Fatalf("Reading the plugin: %v", err)
			}
			for _, want := range []string{"\npackage " + pkg + "\n", "\nvar Plugin = ", `"` + m.Name + `"`} {
				if !strings.Contains(string(source), want) {
					t.Errorf("Got a %s.go without %q", pkg, want)
				}
			}
			test, err := os.ReadFile(filepath.Join(m.folder(), pkg+"_test.go"))
			if err != nil {
				t.Fatalf("Reading the test: %v", err)
			}
			if want := "admittest.Run(t, " + pkg + ".Plugin)"; !strings.Contains(string(test), want) {
				t.Errorf("Got a test without %q", want)
			}
		})
	}
}

// TestCases requires each plugin to have cases in which it acts, and cases in which it does nothing.
func TestCases(t *testing.T) {
	for _, m := range members() {
		t.Run(m.Name, func(t *testing.T) {
			var passes, acts bool
			for _, c := range m.cases(t) {
				for _, step := range c.Steps {
					w := step.Want
					if w.Failure != 0 {
						continue
					}
					acted := !*w.Allowed || w.Object != nil || len(w.Writes)+len(w.Warnings)+len(w.Audit) > 0
					passes, acts = passes || !acted, acts || acted
				}
			}
			if !passes && m.Name != "AlwaysDeny" {
				t.Error("Got no case in which the plugin has nothing to say, want one")
			}
			if !acts && m.Name != "AlwaysAdmit" {
				t.Error("Got no case in which the plugin has something to say, want one")
			}
		})
	}
}
