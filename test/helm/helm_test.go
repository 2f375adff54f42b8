// Package helm tests the Helm chart with Helm's own library, and writes what is generated of it.
package helm

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/postern-dev/postern/cmd/postern/app"
	"github.com/postern-dev/postern/pkg/admissions"
)

const namespace = "postern-system"

// installer is the folder of the chart and of the manifests.
func installer(elements ...string) string {
	return filepath.Join(append([]string{"..", "..", "installer"}, elements...)...)
}

func chartDir() string { return installer("helm", "postern") }

func load(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load(chartDir())
	if err != nil {
		t.Fatalf("Loading the chart: %v", err)
	}
	return c
}

type values = map[string]any

// render renders the templates of the chart in a namespace, and returns the text of each by its name. It fails if the
// schema refuses the values.
func render(c *chart.Chart, namespace string, v values) (map[string]string, error) {
	return renderOn(c, namespace, v, chartutil.DefaultCapabilities, engine.Render)
}

// renderOn is render for a cluster with other capabilities, or with another rendering.
func renderOn(
	c *chart.Chart, namespace string, v values, capabilities *chartutil.Capabilities, rendering func(*chart.Chart, chartutil.Values) (map[string]string, error),
) (map[string]string, error) {
	if err := chartutil.ProcessDependencies(c, v); err != nil {
		return nil, err
	}
	options := chartutil.ReleaseOptions{Name: "postern", Namespace: namespace, Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(c, v, options, capabilities)
	if err != nil {
		return nil, err
	}
	texts, err := rendering(c, all)
	out := map[string]string{}
	for name, text := range texts {
		out[filepath.Base(name)] = text
	}
	return out, err
}

func mustRender(t *testing.T, namespace string, v values) map[string]string {
	t.Helper()
	out, err := render(load(t), namespace, v)
	if err != nil {
		t.Fatalf("Rendering with %v: %v", v, err)
	}
	return out
}

// documents returns the YAML documents of a text that are not empty.
func documents(t *testing.T, text string) [][]byte {
	t.Helper()
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader([]byte(text))))
	var out [][]byte
	for {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(bytes.TrimSpace(doc)) > 0 {
			out = append(out, doc)
		}
	}
}

// builtIn is Postern, without plugins of somebody else.
func builtIn() app.Program { return app.Program{Families: admissions.Families()} }

// postern runs a command of Postern, and returns its exit code and its output.
func postern(t *testing.T, args ...string) (int, string, string) {
	t.Helper()
	var out, errs bytes.Buffer
	code := builtIn().Run(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

// run runs a command of a program, which must succeed, and returns its output.
func run(t *testing.T, p app.Program, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := p.Run(t.Context(), args, &out, &errs); code != 0 {
		t.Fatalf("%q: exit code %d: %s", args, code, errs.String())
	}
	return out.String()
}
