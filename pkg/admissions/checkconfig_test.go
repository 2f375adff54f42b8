package admissions

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postern-dev/postern/pkg/admit"
)

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// strict is a plugin that finds the first mistake only, and needs a field.
func strict(name string) *admit.Plugin {
	return &admit.Plugin{Name: name, Configurable: true, New: func(_ admit.Deps, data []byte) (admit.Handler, error) {
		c, err := admit.LoadConfig[struct {
			Needed string            `json:"needed"`
			Sizes  []int             `json:"sizes"`
			Labels map[string]string `json:"labels"`
			Two    struct {
				A int `json:"a"`
				B int `json:"b"`
			} `json:"two"`
		}](data)
		switch {
		case err != nil:
		case c.Needed == "":
			err = admit.InvalidField("needed", "it is needed")
		case c.Needed == "flag":
			err = errors.New("--flag is wrong")
		case len(c.Sizes) > 0 && c.Sizes[0] > 9:
			err = admit.InvalidField("sizes[0]", "it is more than 9")
		case c.Labels["example.com/a"] == "bad":
			err = admit.InvalidField("labels[example.com/a]", "it is bad")
		case c.Two.A > 0 && c.Two.B > 0:
			err = errors.Join(admit.InvalidField("two.a", "not both"), admit.InvalidField("two.b", "not both"))
		}
		return admit.Handler{}, err
	}}
}

func TestCheckConfigFindsAll(t *testing.T) {
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"
	families := List{{Name: "f", Plugins: []*admit.Plugin{strict("A"), strict("B"), {Name: "C", New: func(admit.Deps, []byte) (admit.Handler, error) { return admit.Handler{}, nil }}}}}
	for name, tc := range map[string]struct {
		files    map[string]string
		enabled  []string // Those of the configuration file if nil.
		want     []string
		warnings []string
		plugins  []string
	}{
		"entries of plugins that are not enabled": {
			files:    map[string]string{"c.yaml": head + "- name: B\n  configuration: {needed: x}\n- name: C\n- name: A\n  configuration: {needed: x}\n"},
			enabled:  []string{"A"},
			warnings: []string{"c.yaml: the entry for B has no effect, because the plugin is not enabled, see --enable-admission-plugins", "c.yaml: the entry for C has no effect, because the plugin is not enabled, see --enable-admission-plugins"},
			plugins:  []string{"A", "B"},
		},
		"entries without a configuration": {
			files:   map[string]string{"c.yaml": head + "- name: C\n  configuration: {a: 1}\n- name: A\n"},
			want:    []string{"c.yaml:5: plugin C: a: unknown field", "c.yaml:6: plugin A: needed: it is needed"},
			plugins: []string{"C"},
		},
		"an entry without a configuration of a plugin that is not enabled": {
			files:    map[string]string{"c.yaml": head + "- name: A\n"},
			enabled:  []string{"C"},
			warnings: []string{"c.yaml: the entry for A has no effect, because the plugin is not enabled, see --enable-admission-plugins"},
		},
		"no entry for a plugin that needs one": {
			files:   map[string]string{"c.yaml": head + "- name: C\n"},
			enabled: []string{"A", "C"},
			want:    []string{"plugin A: needed: it is needed"},
		},
		"a plugin that there is not": {
			files:   map[string]string{"c.yaml": head + "- name: B\n  configuration: {needed: x}\n- name: ResourceQuota2\n"},
			want:    []string{`c.yaml:6: plugins[1].name: there is no plugin "ResourceQuota2"; there are: A, B, C`},
			plugins: []string{"B"},
		},
		"a warning": {
			files:    map[string]string{"c.yaml": head + "- name: B\n  configuration: {needed: x}\n- name: ValidatingAdmissionWebhook\n"},
			warnings: []string{"c.yaml: the entry for ValidatingAdmissionWebhook has no effect, it is not in Postern"},
			plugins:  []string{"B"},
		},
		"everywhere": {
			files: map[string]string{
				"c.yaml": head + `- name: A
  path: a.yaml
  file: a.yaml
- name: D
- name: B
  configuration:
    needed: x
    neded: x
    sizes: [10, many, 11, 5]
    labels:
      example.com/b: 5
      example.com/a: bad
    labels: {}
    two: {a: 1, b: 1, c: 1}
- name: A
- name: C
  configuration: {a: 1}
- name: 7
pluginz: []
`,
				"a.yaml": "needed: x\n# comment\nsizes:\n- 10\n- 11\n- x\n",
			},
			want: []string{
				"c.yaml:6: plugins[0].file: unknown field",
				`c.yaml:7: plugins[1].name: there is no plugin "D"; there are: A, B, C`,
				"c.yaml:11: plugin B: neded: unknown field",
				"c.yaml:12: plugin B: sizes[1]: got string, want int",
				"c.yaml:12: plugin B: sizes[0]: it is more than 9",
				"c.yaml:12: plugin B: sizes[2]: it is more than 9",
				"c.yaml:14: plugin B: labels.example.com/b: got number, want string",
				"c.yaml:15: plugin B: labels.example.com/a: it is bad",
				`c.yaml:16: plugins[2].configuration.labels: key "labels" already set in map`,
				"c.yaml:17: plugin B: two.c: unknown field",
				"c.yaml:17: plugin B: two.a: not both",
				"c.yaml:17: plugin B: two.b: not both",
				"c.yaml:18: plugins[3].name: a second entry for A",
				"c.yaml:20: plugin C: a: unknown field",
				"c.yaml:21: plugins[5].name: got number, want string",
				"c.yaml:22: pluginz: unknown field",
				"a.yaml:4: plugin A: sizes[0]: it is more than 9",
				"a.yaml:5: plugin A: sizes[1]: it is more than 9",
				"a.yaml:6: plugin A: sizes[2]: got string, want int",
			},
			plugins: []string{"A", "B", "C"},
		},
		"a field that is needed, and missed only where it was wrong": {
			files:   map[string]string{"c.yaml": head + "- name: A\n  configuration:\n    needed: 5\n    sizes: [x]\n"},
			want:    []string{"c.yaml:6: plugin A: needed: got number, want string", "c.yaml:7: plugin A: sizes[0]: got string, want int"},
			plugins: []string{"A"},
		},
		"no field": {
			files:   map[string]string{"c.yaml": head + "- name: A\n  configuration:\n    needed: flag\n"},
			want:    []string{"c.yaml:5: plugin A: --flag is wrong"},
			plugins: []string{"A"},
		},
		"two documents, and a field":         {files: map[string]string{"c.yaml": head + "- name: B\n  x: 1\n---\na: 1\n"}, want: []string{"c.yaml:5: plugins[0].x: unknown field", "c.yaml:7: a second document, want one"}},
		"no YAML":                            {files: map[string]string{"c.yaml": "a: ["}, want: []string{"c.yaml:1: did not find expected node content"}},
		"an empty file":                      {files: map[string]string{"c.yaml": ""}, want: []string{"c.yaml:1: the file or its first document is empty, want an AdmissionConfiguration of apiserver.config.k8s.io/v1"}},
		"only comments":                      {files: map[string]string{"c.yaml": "# a\n"}, want: []string{"c.yaml:1: the file or its first document is empty, want an AdmissionConfiguration of apiserver.config.k8s.io/v1"}},
		"only empty documents":               {files: map[string]string{"c.yaml": "---\n---\n"}, want: []string{"c.yaml:2: the file or its first document is empty, want an AdmissionConfiguration of apiserver.config.k8s.io/v1"}},
		"no entry":                           {files: map[string]string{"c.yaml": head + "  []\n"}, warnings: []string{"c.yaml: the file has no entry for a plugin, so it has no effect"}},
		"no entry, and a mistake":            {files: map[string]string{"c.yaml": head + "  []\nplugin: []\n"}, want: []string{"c.yaml:5: plugin: unknown field"}},
		"another kind":                       {files: map[string]string{"c.yaml": "# Pod\nkind: Pod\nplugins: [{nam: A}]"}, want: []string{`c.yaml:2: kind "Pod" of version "", want AdmissionConfiguration of apiserver.config.k8s.io/v1`}},
		"a file of a plugin is missing":      {files: map[string]string{"c.yaml": head + "- name: A\n  path: no.yaml\n- name: B\n  path: no2.yaml\n"}, want: []string{"c.yaml:5: plugins[0].path: open no.yaml: no such file or directory", "c.yaml:7: plugins[1].path: open no2.yaml: no such file or directory"}},
		"a file of a plugin is no YAML":      {files: map[string]string{"c.yaml": head + "- name: A\n  path: a.yaml\n", "a.yaml": "a: 1\nb: ["}, want: []string{"a.yaml:2: plugin A: did not find expected node content"}, plugins: []string{"A"}},
		"a file of a plugin has twice a key": {files: map[string]string{"c.yaml": head + "- name: A\n  path: a.yaml\n", "a.yaml": "needed: x\nneeded: x\nsizes: [10]"}, want: []string{`a.yaml:2: plugin A: needed: key "needed" already set in map`, "a.yaml:3: plugin A: sizes[0]: it is more than 9"}, plugins: []string{"A"}},
		"an empty document after another":    {files: map[string]string{"c.yaml": head + "- name: B\n  configuration: {needed: x, x: 1}\n---\n"}, want: []string{"c.yaml:5: plugin B: x: unknown field"}, plugins: []string{"B"}},
		"aliases":                            {files: map[string]string{"c.yaml": head + "- name: A\n  configuration: &a\n    needed: x\n    wrong: 1\n- name: B\n  configuration: *a\n"}, want: []string{"c.yaml:7: plugin A: wrong: unknown field", "c.yaml:7: plugin B: wrong: unknown field"}, plugins: []string{"A", "B"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range tc.files {
				write(t, filepath.Join(dir, name), text)
			}
			if tc.enabled == nil {
				tc.enabled = slices.DeleteFunc(families.Names(), func(name string) bool { return !strings.Contains(tc.files["c.yaml"], "name: "+name+"\n") })
			}
			checked, err := families.CheckConfig(filepath.Join(dir, "c.yaml"), tc.enabled, func() (admit.Deps, error) { return admit.Deps{}, nil })
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, m := range checked.Mistakes {
				got = append(got, strings.ReplaceAll(m.String(), dir+string(filepath.Separator), ""))
			}
			if diff := cmp.Diff(got, tc.want); diff != "" {
				t.Errorf("Mistakes differ (- got, + want):\n%s", diff)
			}
			for i, w := range checked.Warnings {
				checked.Warnings[i] = strings.ReplaceAll(w, dir+string(filepath.Separator), "")
			}
			if diff := cmp.Diff(checked.Warnings, tc.warnings); diff != "" {
				t.Errorf("Warnings differ (- got, + want):\n%s", diff)
			}
			if diff := cmp.Diff(checked.Plugins, tc.plugins); diff != "" {
				t.Errorf("Plugins differ (- got, + want):\n%s", diff)
			}
		})
	}
}

func TestCheckConfigWithoutFileOrDeps(t *testing.T) {
	if _, err := Families().CheckConfig("/no/file", nil, nil); err == nil {
		t.Error("Got no error without a file")
	}
	file := filepath.Join(t.TempDir(), "c.yaml")
	write(t, file, "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins: [{name: PodSecurity, configuration: {}}]")
	broken := errors.New("broken")
	if _, err := Families().CheckConfig(file, nil, func() (admit.Deps, error) { return admit.Deps{}, broken }); !errors.Is(err, broken) {
		t.Errorf("Got error %v, want that of deps", err)
	}
}
