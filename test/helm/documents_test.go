package helm

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/strvals"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"
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

// valuesBlock is a file of values in a document, whose first line is its name.
var valuesBlock = regexp.MustCompile("(?ms)^```yaml\n# ([a-z-]+\\.yaml)\n(.*?)^```$")

// TestDocumentedVolumes renders the chart with each file of values in docs/files.md. The files that the configuration and the
// arguments name must be below a mount of the container, and each mount must have its volume.
func TestDocumentedVolumes(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "files.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, block := range valuesBlock.FindAllStringSubmatch(string(text), -1) {
		name, raw := block[1], block[2]
		if !strings.Contains(raw, "extraVolumes:") {
			continue
		}
		found++
		v, err := chartutil.ReadValues([]byte(raw))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var d appsv1.Deployment
		if err := yaml.UnmarshalStrict([]byte(mustRender(t, namespace, v)["deployment.yaml"]), &d); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		volumes := map[string]bool{}
		for _, volume := range d.Spec.Template.Spec.Volumes {
			volumes[volume.Name] = true
		}
		var folders []string
		for _, mount := range d.Spec.Template.Spec.Containers[0].VolumeMounts {
			if !volumes[mount.Name] {
				t.Errorf("%s: the mount at %s has no volume", name, mount.MountPath)
			}
			folders = append(folders, mount.MountPath)
		}
		for _, file := range regexp.MustCompile(`[ =](/etc/[a-z-]+)/[a-z.]+`).FindAllStringSubmatch(raw, -1) {
			if !slices.Contains(folders, file[1]) {
				t.Errorf("%s: no volume is mounted at %s", name, file[1])
			}
		}
	}
	if found < 4 {
		t.Errorf("Found %d files of values with volumes, want one of each example", found)
	}
}

var mountPath = regexp.MustCompile(`mountPath: (/etc/[a-z-]+)`)

const kubeconfig = `{clusters: [{name: a, cluster: {server: "https://example.com"}}], contexts: [{name: a, context: {cluster: a}}], current-context: a}`

var trySection = regexp.MustCompile("(?ms)^## Try it$.*?^```yaml\n(.*?)^```$")

// TestReadmesHaveValues renders the chart with the values in each plugin's README, and has Postern check their configuration. The
// kubeconfigs of mounted Secrets are in a folder of the test.
func TestReadmesHaveValues(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "pkg", "admissions", "*", "*", "README.md"))
	if err != nil || len(files) < 40 {
		t.Fatalf("Got %d READMEs, error %v, want those of all plugins", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			match := trySection.FindSubmatch(text)
			if match == nil {
				t.Fatal("There are no values")
			}
			dir := t.TempDir()
			for _, mount := range mountPath.FindAllSubmatch(match[1], -1) {
				folder := filepath.Join(dir, string(mount[1]))
				if err := os.MkdirAll(folder, 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(folder, "kubeconfig"), []byte(kubeconfig), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			v, err := chartutil.ReadValues(bytes.ReplaceAll(match[1], []byte(" /etc/"), []byte(" "+dir+"/etc/")))
			if err != nil {
				t.Fatal(err)
			}
			texts := mustRender(t, namespace, v)
			if v["configuration"] != nil {
				checkConfiguration(t, texts)
			}
		})
	}
}
