package admissions_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postern-dev/postern/pkg/admissions"
	"github.com/postern-dev/postern/pkg/admit"
)

// folder creates a folder with the given files.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatalf("Making a folder: %v", err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatalf("Writing a file: %v", err)
		}
	}
	return dir
}

const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n"

func TestConfigs(t *testing.T) {
	notEnabled := func(plugin string) string {
		return "c.yaml: the entry for " + plugin + " has no effect, because the plugin is not enabled, see --enable-admission-plugins"
	}
	inline := "- name: AlwaysPullImages\n  configuration: {includeEphemeralContainers: true}\n"
	for name, tc := range map[string]struct {
		files    map[string]string
		want     map[string]string
		warnings []string
	}{
		"inline": {
			files: map[string]string{"c.yaml": head + "plugins:\n" + inline},
			want:  map[string]string{"AlwaysPullImages": `{"includeEphemeralContainers":true}`},
		},
		"in JSON": {
			files: map[string]string{"c.yaml": `{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": [{"name": "AlwaysPullImages", "configuration": {"a": 1}}]}`},
			want:  map[string]string{"AlwaysPullImages": `{"a":1}`},
		},
		"of the older version": {
			files: map[string]string{"c.yaml": "apiVersion: apiserver.k8s.io/v1alpha1\nkind: AdmissionConfiguration\nplugins:\n" + inline},
			want:  map[string]string{"AlwaysPullImages": `{"includeEphemeralContainers":true}`},
		},
		"in a file beside it": {
			files: map[string]string{"c.yaml": head + "plugins: [{name: AlwaysPullImages, path: more/pull.yaml}]", "more/pull.yaml": "a: 1"},
			want:  map[string]string{"AlwaysPullImages": "a: 1"},
		},
		"no field plugins":    {files: map[string]string{"c.yaml": head}, warnings: []string{"c.yaml: the file has no entry for a plugin, so it has no effect"}},
		"no value of plugins": {files: map[string]string{"c.yaml": head + "plugins:\n"}, warnings: []string{"c.yaml: the file has no entry for a plugin, so it has no effect"}},
		"no entry":            {files: map[string]string{"c.yaml": head + "plugins: []\n"}, warnings: []string{"c.yaml: the file has no entry for a plugin, so it has no effect"}},
		"inline, and in a file that does not count": {
			files: map[string]string{"c.yaml": head + "plugins: [{name: AlwaysPullImages, path: missing.yaml, configuration: {a: 1}}]"},
			want:  map[string]string{"AlwaysPullImages": `{"a":1}`},
		},
		"an entry without a configuration": {
			files: map[string]string{"c.yaml": head + "plugins: [{name: AlwaysPullImages}]"},
			want:  map[string]string{"AlwaysPullImages": ""},
		},
		"an entry for a plugin that does not run, with a file that is not there": {
			files:    map[string]string{"c.yaml": head + "plugins: [{name: Priority, path: missing.yaml}]"},
			warnings: []string{notEnabled("Priority")},
		},
		"an entry for what Postern is called through": {
			files:    map[string]string{"c.yaml": head + "plugins: [{name: ValidatingAdmissionWebhook, configuration: {a: 1}}]"},
			warnings: []string{"c.yaml: the entry for ValidatingAdmissionWebhook has no effect, it is not in Postern"},
		},
		"the old form of ImagePolicyWebhook": {
			files:    map[string]string{"c.yaml": "imagePolicy: {allowTTL: 50}"},
			warnings: []string{notEnabled("ImagePolicyWebhook")},
			want:     map[string]string{"ImagePolicyWebhook": "imagePolicy: {allowTTL: 50}"},
		},
		"the old form of PodNodeSelector": {
			files:    map[string]string{"c.yaml": "podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: a=b}"},
			warnings: []string{notEnabled("PodNodeSelector")},
			want:     map[string]string{"PodNodeSelector": "podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: a=b}"},
		},
		"the old form without a value": {
			files:    map[string]string{"c.yaml": "podNodeSelectorPluginConfig:\n"},
			warnings: []string{notEnabled("PodNodeSelector")},
			want:     map[string]string{"PodNodeSelector": "podNodeSelectorPluginConfig:\n"},
		},
		"the old form of both": {
			files:    map[string]string{"c.yaml": "{imagePolicy: {}, podNodeSelectorPluginConfig: {}}"},
			warnings: []string{notEnabled("ImagePolicyWebhook"), notEnabled("PodNodeSelector")},
			want: map[string]string{
				"ImagePolicyWebhook": "{imagePolicy: {}, podNodeSelectorPluginConfig: {}}",
				"PodNodeSelector":    "{imagePolicy: {}, podNodeSelectorPluginConfig: {}}",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := folder(t, tc.files)
			configs, warnings, err := admissions.Families().LoadConfigs(filepath.Join(dir, "c.yaml"), []string{"AlwaysPullImages"})
			if err != nil {
				t.Fatalf("Got error %v, want none", err)
			}
			got := map[string]string{}
			for name, c := range configs {
				got[name] = string(c.Data)
			}
			if tc.want == nil {
				tc.want = map[string]string{}
			}
			if diff := cmp.Diff(got, tc.want); diff != "" {
				t.Errorf("Configurations differ (- got, + want):\n%s", diff)
			}
			for i := range warnings {
				warnings[i] = strings.ReplaceAll(warnings[i], dir+string(filepath.Separator), "")
			}
			if diff := cmp.Diff(warnings, tc.warnings); diff != "" {
				t.Errorf("Warnings differ (- got, + want):\n%s", diff)
			}
		})
	}
}

func TestNoConfigs(t *testing.T) {
	configs, warnings, err := admissions.Families().LoadConfigs("", []string{"AlwaysPullImages"})
	if err != nil || len(configs)+len(warnings) > 0 {
		t.Errorf("Got %v, %q, %v; want nothing", configs, warnings, err)
	}
}

// TestConfigMistakes covers files that stop the start. It compares whole messages, except for the folder and
// the list of plugins.
func TestConfigMistakes(t *testing.T) {
	for name, tc := range map[string]struct {
		files map[string]string
		want  string
	}{
		"a file that is not there": {
			nil, "--admission-control-config-file: open c.yaml: no such file or directory",
		},
		"an empty file": {
			map[string]string{"c.yaml": ""}, `c.yaml:1: the file or its first document is empty, want an AdmissionConfiguration of apiserver.config.k8s.io/v1`,
		},
		"a file with only comments": {
			map[string]string{"c.yaml": "# none\n"}, `c.yaml:1: the file or its first document is empty, want an AdmissionConfiguration of apiserver.config.k8s.io/v1`,
		},
		"a file with only empty documents": {
			map[string]string{"c.yaml": "---\n---\n"}, `c.yaml:2: the file or its first document is empty, want an AdmissionConfiguration of apiserver.config.k8s.io/v1`,
		},
		"an empty mapping": {
			map[string]string{"c.yaml": "{}"}, `c.yaml:1: the file or its first document is empty, want an AdmissionConfiguration of apiserver.config.k8s.io/v1`,
		},
		"a list": {
			map[string]string{"c.yaml": "[]"}, `c.yaml:1: want a mapping`,
		},
		"another kind": {
			map[string]string{"c.yaml": "apiVersion: v1\nkind: Pod"}, `c.yaml:1: kind "Pod" of version "v1", want AdmissionConfiguration of apiserver.config.k8s.io/v1`,
		},
		"another version": {
			map[string]string{"c.yaml": "apiVersion: apiserver.config.k8s.io/v2\nkind: AdmissionConfiguration"}, `c.yaml:1: kind "AdmissionConfiguration" of version "apiserver.config.k8s.io/v2", want AdmissionConfiguration of apiserver.config.k8s.io/v1`,
		},
		"no YAML": {
			map[string]string{"c.yaml": head + "plugins: ["}, `c.yaml:3: did not find expected node content`,
		},
		"a key twice": {
			map[string]string{"c.yaml": head + "plugins: []\nplugins: []"}, `c.yaml:4: plugins: key "plugins" already set in map`,
		},
		"two documents": {
			map[string]string{"c.yaml": head + "plugins: []\n---\n" + head}, `c.yaml:5: a second document, want one`,
		},
		"an unknown field": {
			map[string]string{"c.yaml": head + "plugins:\n- name: AlwaysPullImages\n  config: {}"}, `c.yaml:5: plugins[0].config: unknown field`,
		},
		"a field of another type": {
			map[string]string{"c.yaml": head + "plugins:\n- name: 5\n"}, `c.yaml:4: plugins[0].name: got number, want string`,
		},
		"an unknown plugin without a likely name": {
			map[string]string{"c.yaml": head + "plugins: [{name: Gatekeeper}]"}, `c.yaml:3: plugins[0].name: there is no plugin "Gatekeeper"; there are: LIST`,
		},
		"an unknown plugin": {
			map[string]string{"c.yaml": head + "plugins:\n- name: AlwaysPullImages\n- name: AlwaysPushImages"}, `c.yaml:5: plugins[1].name: there is no plugin "AlwaysPushImages", did you mean AlwaysPullImages?`,
		},
		"an entry twice": {
			map[string]string{"c.yaml": head + "plugins:\n- name: AlwaysPullImages\n\n- name: AlwaysPullImages"}, `c.yaml:6: plugins[1].name: a second entry for AlwaysPullImages`,
		},
		"a path to nowhere": {
			map[string]string{"c.yaml": head + "plugins:\n- name: AlwaysPullImages\n  path: missing.yaml"}, `c.yaml:5: plugins[0].path: open missing.yaml: no such file or directory`,
		},
		"an unknown field of a plugin": {
			map[string]string{"c.yaml": head + "plugins:\n- name: AlwaysPullImages\n  configuration:\n    includeAll: true"}, `c.yaml:6: plugin AlwaysPullImages: includeAll: unknown field`,
		},
		"a field of another type of a plugin": {
			map[string]string{"c.yaml": head + "plugins:\n- name: AlwaysPullImages\n  configuration:\n    includeEphemeralContainers: 'yes'"}, `c.yaml:6: plugin AlwaysPullImages: includeEphemeralContainers: got string, want bool`,
		},
		"an unknown field of a plugin in a file of its own": {
			map[string]string{"c.yaml": head + "plugins: [{name: AlwaysPullImages, path: pull.yaml}]", "pull.yaml": "# Pull.\nincludeAll: true"}, `pull.yaml:2: plugin AlwaysPullImages: includeAll: unknown field`,
		},
		"no YAML in a file of its own": {
			map[string]string{"c.yaml": head + "plugins: [{name: AlwaysPullImages, path: pull.yaml}]", "pull.yaml": "a: ["}, `pull.yaml:1: plugin AlwaysPullImages: did not find expected node content`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := folder(t, tc.files)
			err := start(filepath.Join(dir, "c.yaml"), "AlwaysPullImages")
			if err == nil {
				t.Fatal("Got no error, want one")
			}
			got := strings.ReplaceAll(err.Error(), dir+string(filepath.Separator), "")
			got = strings.ReplaceAll(got, strings.Join(admissions.Families().Names(), ", "), "LIST")
			if got != tc.want {
				t.Errorf("Got error\n\t%s, want\n\t%s", got, tc.want)
			}
		})
	}
}

// TestConfigDocuments covers what may stand around the document of a file. kube-apiserver reads the first document, even an
// empty one, and ignores the others, so it accepts all of these except for those in which the first document is empty.
func TestConfigDocuments(t *testing.T) {
	configuration := head + "plugins: [{name: AlwaysPullImages, path: pull.yaml}]\n"
	const pull = "includeEphemeralContainers: true\n"
	const second = ": a second document, want one"
	for name, tc := range map[string]struct {
		before, after string
		// want is the end of the error.
		want string
	}{
		"an end":                                  {after: "---\n"},
		"an end without a line feed":              {after: "---"},
		"an end with comments":                    {after: "--- # The end.\n# More.\n"},
		"an end of YAML":                          {after: "...\n"},
		"an end of YAML, a comment, and an end":   {after: "...\n# More.\n---\n"},
		"several empty documents":                 {after: "---\n---\n# More.\n---\nnull\n"},
		"a start":                                 {before: "---\n"},
		"a comment before the start":              {before: "# First.\n---\n"},
		"a byte order mark":                       {before: "\ufeff"},
		"a byte order mark, a start and an end":   {before: "\ufeff---\n", after: "---\n"},
		"a version of YAML":                       {before: "%YAML 1.1\n---\n"},
		"a second document that is no YAML":       {after: "---\nb: [\n"},
		"a second document":                       {after: "---\na: 1\n", want: second},
		"a second document that is a word":        {after: "---\na\n", want: second},
		"an empty document and another one":       {after: "---\n---\na: 1\n", want: second},
		"an empty document before":                {before: "---\n---\n", want: second},
		"a document without a value before":       {before: "---\n# First.\n---\n", want: second},
		"an empty document before, and a comment": {before: "---\n---\n# First.\n", want: second},
	} {
		t.Run(name, func(t *testing.T) {
			around := func(text string) string { return tc.before + text + tc.after }
			for form, files := range map[string]map[string]string{
				"the configuration":          {"c.yaml": around(configuration), "pull.yaml": pull},
				"the file of the plugin":     {"c.yaml": configuration, "pull.yaml": around(pull)},
				"both with CRLF":             {"c.yaml": strings.ReplaceAll(around(configuration), "\n", "\r\n"), "pull.yaml": strings.ReplaceAll(around(pull), "\n", "\r\n")},
				"the form without a version": {"c.yaml": around("podNodeSelectorPluginConfig: {a: b=c}\n")},
			} {
				err := start(filepath.Join(folder(t, files), "c.yaml"), "AlwaysPullImages")
				if (err == nil) != (tc.want == "") || err != nil && !strings.HasSuffix(err.Error(), tc.want) {
					t.Errorf("In %s: got error %v, want %q", form, err, tc.want)
				}
			}
		})
	}
}

// start processes the file as the process does at its start.
func start(file string, enabled ...string) error {
	configs, _, err := admissions.Families().LoadConfigs(file, enabled)
	if err != nil {
		return err
	}
	_, err = admissions.Families().Services(admit.Deps{}, enabled, configs)
	return err
}
