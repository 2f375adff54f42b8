package twoservers

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/test/controlplane"
)

// enough is the minimum number of scenarios of a plugin.
const enough = 5

var serverList = regexp.MustCompile(`--admission-control strings.*Comma-delimited list of: ([A-Za-z, ]+)\.`)

// shared returns the plugins that exist both in this build of Postern and in kube-apiserver.
func shared(t *testing.T) []string {
	t.Helper()
	dir, err := controlplane.Build(t.Context(), "", io.Discard, "kube-apiserver")
	if err != nil {
		t.Fatalf("Looking for kube-apiserver: %v", err)
	}
	help, err := exec.CommandContext(t.Context(), filepath.Join(dir, "kube-apiserver"), "--help").Output()
	if err != nil {
		t.Fatalf("kube-apiserver --help: %v", err)
	}
	theirs := serverList.FindSubmatch(help)
	if theirs == nil {
		t.Fatalf("There is no list of plugins in %s", help)
	}
	names := strings.Split(string(theirs[1]), ", ")
	return slices.DeleteFunc(suite.Plugins(t), func(name string) bool {
		return !slices.Contains(names, name)
	})
}

// TestEveryPluginHasScenarios tests that each shared plugin has the minimum number of scenarios.
func TestEveryPluginHasScenarios(t *testing.T) {
	t.Parallel()
	plugins := shared(t)
	for _, plugin := range plugins {
		t.Run(plugin, func(t *testing.T) {
			if got := len(load(t, plugin).Scenarios); got < enough {
				t.Errorf("There are %d scenarios, want at least %d", got, enough)
			}
		})
	}
	files, err := filepath.Glob("scenarios/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		if name := strings.TrimSuffix(filepath.Base(path), ".yaml"); !slices.Contains(plugins, name) {
			t.Errorf("%s has scenarios of no plugin that both have", path)
		}
	}
}

// TestDifferencesAreDocumented tests that the README of each plugin documents every difference in its scenarios.
func TestDifferencesAreDocumented(t *testing.T) {
	t.Parallel()
	for _, plugin := range shared(t) {
		t.Run(plugin, func(t *testing.T) {
			documented := differencesIn(t, plugin)
			for _, s := range load(t, plugin).Scenarios {
				for i, st := range s.Steps {
					if d := st.Differs; d != nil && !strings.Contains(documented, words(d.README)) {
						t.Errorf("%s: step %d: the differences in the README of %s do not have %q", s.Name, i+1, plugin, d.README)
					}
				}
			}
		})
	}
}

// differencesIn returns the section about differences of a plugin's README as one line.
func differencesIn(t *testing.T, plugin string) string {
	t.Helper()
	pattern := filepath.Join("..", "..", "..", "pkg", "admissions", "*", strings.ToLower(plugin), "README.md")
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) != 1 {
		t.Fatalf("Looking for %s: %q, %v", pattern, files, err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(data), "\n## Differences from kube-apiserver\n")
	if !found {
		t.Fatalf("%s has no differences", files[0])
	}
	return words(section)
}

// words returns the text with every sequence of white space replaced by one blank.
func words(text string) string { return strings.Join(strings.Fields(text), " ") }
