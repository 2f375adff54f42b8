package helm

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/strvals"
)

var (
	setArgument    = regexp.MustCompile("--set ((?:[^\\s'`]|'[^']*')+)")
	valuesArgument = regexp.MustCompile(`(?:-f|--values)[\s=]+(installer/[\w./-]+\.yaml)`)
)

// TestDocumentsNameValues renders the chart with every --set of the documents, and reads every file of values.
func TestDocumentsNameValues(t *testing.T) {
	root := filepath.Join("..", "..")
	files, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	sets, presets := 0, 0
	for _, file := range append(files, filepath.Join(root, "README.md")) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "helm ") {
			continue
		}
		for _, m := range setArgument.FindAllStringSubmatch(string(text), -1) {
			sets++
			// A shell removes the quotes.
			v, err := strvals.Parse(strings.NewReplacer("'", "", `"`, "").Replace(m[1]))
			if err == nil {
				_, err = render(load(t), namespace, v)
			}
			if err != nil {
				t.Errorf("%s: --set %s: %v", file, m[1], err)
			}
		}
		for _, m := range valuesArgument.FindAllStringSubmatch(string(text), -1) {
			presets++
			if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
	if sets < 5 || presets < 1 {
		t.Errorf("Found %d times --set, and %d files of values, want more", sets, presets)
	}
}
