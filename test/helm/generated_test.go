package helm

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postern-dev/postern/pkg/admissions"
)

var update = flag.Bool("update", false, "write the generated files")

// want compares a file of the installer with what is generated, or writes the file.
func want(t *testing.T, path, text string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(text, string(have)); diff != "" {
		t.Errorf("%s is not up to date, run make generate (- want, + got):\n%s", path, diff)
	}
}

// TestChartVersion generates the versions of the chart from the file VERSION.
func TestChartVersion(t *testing.T) {
	version, err := os.ReadFile(filepath.Join("..", "..", "VERSION"))
	if err != nil {
		t.Fatal(err)
	}
	path, v := filepath.Join(chartDir(), "Chart.yaml"), strings.TrimSpace(string(version))
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile(`(?m)^version: .*$`).ReplaceAll(have, []byte("version: "+strings.TrimPrefix(v, "v")))
	text = regexp.MustCompile(`(?m)^appVersion: .*$`).ReplaceAll(text, []byte("appVersion: "+v))
	want(t, path, string(text))
}

// TestProgramFile generates what the chart knows of Postern. A program with other plugins passes the same as a value.
func TestProgramFile(t *testing.T) {
	out := run(t, builtIn(), "plugins", "--output=helm")
	want(t, filepath.Join(chartDir(), "files", "program.yaml"), "# Written by make generate, from the output of postern plugins --output=helm.\n"+out)
}

// TestSchemaNamesPlugins generates the plugins in the schema, and those that have a configuration.
func TestSchemaNamesPlugins(t *testing.T) {
	path := filepath.Join(chartDir(), "values.schema.json")
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(have, &schema); err != nil {
		t.Fatal(err)
	}
	// A program may have others. The templates compare the names, and editors offer these.
	schema["definitions"].(values)["plugin"] = values{"anyOf": []any{
		values{"enum": admissions.Families().Names()}, values{"type": "string", "pattern": "^[^, ]+$"},
	}}
	configurations := values{}
	for p := range admissions.Families().Plugins() {
		if p.Configurable {
			configurations[p.Name] = values{"type": "object"}
		}
	}
	schema["properties"].(values)["configuration"].(values)["properties"] = configurations
	data, err := json.MarshalIndent(schema, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	data = bytes.ReplaceAll(data, []byte(`\u003c`), []byte("<"))
	want(t, path, string(data)+"\n")
}

// TestDefinitions generates the chart's copies of the definitions.
func TestDefinitions(t *testing.T) {
	files, err := filepath.Glob(installer("crds", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("Got the definitions %v, %v", files, err)
	}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want(t, filepath.Join(chartDir(), "files", "crds", filepath.Base(path)), string(data))
	}
	copies, err := filepath.Glob(filepath.Join(chartDir(), "files", "crds", "*"))
	if err != nil || len(copies) != len(files) {
		t.Errorf("Got the copies %v, %v, want those of %v", copies, err, files)
	}
}

// TestManifests generates the manifests for clusters without Helm.
func TestManifests(t *testing.T) {
	texts := mustRender(t, namespace, values{
		"image": values{"tag": "dev"}, "namespace": values{"create": true}, "networkPolicy": values{"enabled": true},
	})
	join := func(comment string, names ...string) string {
		var docs []string
		for _, name := range names {
			if strings.TrimSpace(texts[name]) == "" {
				t.Errorf("%s is empty", name)
			}
			docs = append(docs, strings.TrimSpace(texts[name])+"\n")
		}
		return fmt.Sprintf("# Written by make generate, from the Helm chart in installer/helm/postern. %s\n", comment) + strings.Join(docs, "---\n")
	}
	want(t, installer("postern.yaml"), join("Set the\n# image, and the plugins in the arguments of the container. Apply the roles too.",
		"namespace.yaml", "serviceaccount.yaml", "service.yaml", "poddisruptionbudget.yaml", "deployment.yaml"))
	want(t, installer("rbac.yaml"), printed(t, arguments(t, texts)...))
	// The end-to-end tests run the command of the Job with the permissions of the Job.
	want(t, filepath.Join("..", "e2e", "testdata", "uninstall.yaml"), join("An end-to-end test applies it.", "uninstall.yaml"))
	want(t, installer("flowcontrol.yaml"), join("Apply it on\n# Kubernetes 1.29 or later.", "flowcontrol.yaml"))
	want(t, installer("traffic.yaml"), join("Apply it if\n# the network plugin enforces policies.", "networkpolicy.yaml"))
}
