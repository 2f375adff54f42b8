package admissions

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/admittest"
	"github.com/postern-dev/postern/pkg/router"
)

var update = flag.Bool("update", false, "write the table of plugins into the project's README")

// readme is the parsed README of a plugin.
type readme struct {
	title, summary string
	headings       []string
	sections       map[string]string
}

func (m member) readme(t *testing.T) readme {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(m.folder(), "README.md"))
	if err != nil {
		t.Fatalf("Reading the README: %v", err)
	}
	r := readme{sections: map[string]string{}}
	head, rest, _ := strings.Cut(string(text), "\n## ")
	lines := strings.Split(strings.TrimSpace(head), "\n")
	r.title = lines[0]
	if len(lines) == 3 && lines[1] == "" {
		r.summary = lines[2]
	}
	for section := range strings.SplitSeq(rest, "\n## ") {
		heading, body, _ := strings.Cut(section, "\n")
		r.headings = append(r.headings, heading)
		r.sections[heading] = body
	}
	return r
}

func TestPluginReadmes(t *testing.T) {
	for _, m := range members() {
		t.Run(m.Name, func(t *testing.T) {
			r := m.readme(t)
			if want := "# " + m.Name; r.title != want {
				t.Errorf("Got title %q, want %q", r.title, want)
			}
			if r.summary == "" {
				t.Error("Got no single line below the title, want one that says what the plugin does")
			}
			if want := []string{"Description", "Requests", "Configuration", "Try it", "Examples", "Differences from kube-apiserver"}; !slices.Equal(r.headings, want) {
				t.Errorf("Got sections %q, want %q", r.headings, want)
			}
			for heading, body := range r.sections {
				if strings.TrimSpace(body) == "" {
					t.Errorf("Got nothing under %q", heading)
				}
			}
		})
	}
}

var consoleBlock = regexp.MustCompile("(?ms)^```console\n\\$ kubectl .*?^```$")

// withoutCommands lists the plugins whose section has no commands, with the reason.
var withoutCommands = map[string]string{
	"AlwaysAdmit":        "it does nothing",
	"FleetQuota":         "it needs a hub, which docs/fleet-quota.md has",
	"ImagePolicyWebhook": "it needs a backend, which docs/files.md has",
}

// howToTry begins each section with commands.
const howToTry = "\n[Try a plugin](../../../../docs/try-a-plugin.md) says what to do with these values and commands.\n"

var (
	whole      = regexp.MustCompile(`concern the whole cluster|for the whole cluster`)
	dryRunNode = regexp.MustCompile(`(?s)kubectl apply --dry-run=server[^$]*kind: Node\n`)
	// deleted has the name of an object that is deleted, and its namespace.
	deleted = regexp.MustCompile(`(?m)^\S+ "(.*)" (?:force )?deleted(?: from (.*) namespace)?$`)
)

// TestReadmesSayHowToTry checks that each README has the values of the Helm chart that enable the plugin, and commands,
// and says whether the values concern the whole cluster. TestReadmesHaveValues of test/helm renders the chart with the
// values, and TestReadmesCanBeTried of test/e2e runs the commands.
func TestReadmesSayHowToTry(t *testing.T) {
	for _, m := range members() {
		t.Run(m.Name, func(t *testing.T) {
			section := m.readme(t).sections["Try it"]
			blocks := yamlBlock.FindAllStringSubmatch(section, -1)
			if len(blocks) != 1 {
				t.Fatalf("Got %d blocks of YAML, want the values", len(blocks))
			}
			var values struct {
				Plugins       []string
				Configuration map[string]any
			}
			if err := yaml.Unmarshal([]byte(blocks[0][1]), &values); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(values.Plugins, []string{m.Name}) {
				t.Errorf("The values enable %q, want %s", values.Plugins, m.Name)
			}
			if _, configured := values.Configuration[m.Name]; configured != (len(values.Configuration) == 1) || len(values.Configuration) > 1 {
				t.Errorf("The values configure %v, want only %s", values.Configuration, m.Name)
			}
			want := 1
			if withoutCommands[m.Name] != "" {
				want = 0
			}
			if got := len(consoleBlock.FindAllString(section, -1)); got != want {
				t.Errorf("Got %d blocks with commands, want %d", got, want)
			}
			if strings.HasPrefix(section, howToTry) != (want == 1) {
				t.Errorf("The section must begin with %q if it has commands", howToTry)
			}
			words := strings.Join(strings.Fields(section), " ")
			says := strings.Contains(words, "kube-apiserver runs this plugin by default")
			if on := upstreamByName()[m.Name].defaultOn; says != on {
				t.Errorf("The section says that kube-apiserver runs the plugin by default: %t, want %t", says, on)
			}
			if m.Name != "AlwaysAdmit" && whole.MatchString(words) == strings.Contains(words, "concern only") {
				t.Errorf("The section must say whether the values concern the whole cluster, or what they concern only")
			}
			names := deleted.FindAllStringSubmatch(section, -1)
			if strings.Contains(section, "\" deleted") && len(names) == 0 {
				t.Error("The names of the deleted objects are not recognized")
			}
			for _, match := range names {
				if !strings.HasPrefix(match[1], "trial-") && !strings.HasPrefix(match[2], "trial-") {
					t.Errorf("The commands delete %s, which may be somebody else's. Its name or its namespace must begin with trial-", match[1])
				}
			}
			if node := strings.Contains(section, "kind: Node\n") && !dryRunNode.MatchString(section); node != strings.Contains(words, "without a cloud controller") {
				t.Errorf("The commands make a node: %t. The section must say that a cloud controller would delete it, or not speak of it", node)
			}
		})
	}
}

// exempt returns the sentence about requests that a plugin does not receive.
func exempt(registered []hook) string {
	namespaces := "Postern's own namespace and in those"
	if slices.ContainsFunc(registered, func(h hook) bool { return router.IsForOwnNamespace(h.conditions) }) {
		namespaces = "the namespaces"
	}
	return "- Requests in " + namespaces + " of `--exempt-namespaces`, and all requests of the user `system:apiserver`, are exempt: " +
		"the plugin does not see them."
}

// TestReadmesNameTheExemptions requires each README to state which requests its plugin does not restrict.
func TestReadmesNameTheExemptions(t *testing.T) {
	for _, m := range members() {
		t.Run(m.Name, func(t *testing.T) {
			hooks := registered(t, allGates(true), m.Name)
			if len(hooks) == 0 {
				return // The API server never calls Postern for it.
			}
			differences := strings.Join(strings.Fields(m.readme(t).sections["Differences from kube-apiserver"]), " ")
			if want := exempt(hooks); !strings.Contains(differences, want) {
				t.Errorf("The differences do not have the sentence %q", want)
			}
		})
	}
}

var exampleFile = regexp.MustCompile(`testdata/[^)\s]*`)

// TestExamplesExist checks that the files in the examples of a README exist.
func TestExamplesExist(t *testing.T) {
	for _, m := range members() {
		t.Run(m.Name, func(t *testing.T) {
			files := exampleFile.FindAllString(m.readme(t).sections["Examples"], -1)
			if len(files) == 0 {
				t.Error("Got no example, want some")
			}
			for _, file := range files {
				if _, err := os.Stat(filepath.Join(m.folder(), file)); err != nil {
					t.Errorf("Example: %v", err)
				}
			}
		})
	}
}

var yamlBlock = regexp.MustCompile("(?s)\n```yaml\n(.*?)```")

// TestDocumentedConfigurationsLoad loads the configurations in a README: admission configuration files,
// plugin configurations, and objects. Files that they name are read from testdata, also those in documentedFolder.
func TestDocumentedConfigurationsLoad(t *testing.T) {
	for _, m := range members() {
		t.Run(m.Name, func(t *testing.T) {
			blocks := yamlBlock.FindAllStringSubmatch("\n"+m.readme(t).sections["Configuration"], -1)
			testdata, err := filepath.Abs(filepath.Join(m.folder(), "testdata"))
			if err != nil {
				t.Fatalf("Finding testdata: %v", err)
			}
			for _, block := range blocks {
				if err := m.loads(t, testdata, []byte(block[1])); err != nil {
					t.Errorf("This does not load: %v\n%s", err, block[1])
				}
			}
		})
	}
}

// documentedFolder is where the documented files of a plugin are in a pod of Postern.
const documentedFolder = "/etc/postern/"

func (m member) loads(t *testing.T, testdata string, doc []byte) error {
	t.Helper()
	var head struct{ APIVersion, Kind string }
	if err := yaml.Unmarshal(doc, &head); err != nil {
		return err
	}
	strict := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	if head.Kind != "AdmissionConfiguration" {
		_, gvk, err := strict.Decode(doc, nil, nil)
		if gvk != nil && scheme.Scheme.Recognizes(*gvk) {
			return err
		}
		return m.configures(t, doc)
	}
	dir := t.TempDir()
	doc = bytes.ReplaceAll(doc, []byte(documentedFolder), []byte(dir+"/"))
	if err := os.CopyFS(dir, os.DirFS(testdata)); err != nil {
		return err
	}
	file := filepath.Join(dir, "documented-admission-configuration.yaml")
	if err := os.WriteFile(file, doc, 0o600); err != nil {
		return err
	}
	configs, warnings, err := Families().LoadConfigs(file, []string{m.Name})
	if err != nil || len(warnings) > 0 {
		return fmt.Errorf("warnings %q, error %w", warnings, err)
	}
	if _, ok := configs[m.Name]; !ok {
		return errors.New("there is no configuration for the plugin in it")
	}
	return m.configures(t, configs[m.Name].Data)
}

func (m member) configures(t *testing.T, config []byte) error {
	t.Helper()
	document, err := json.Marshal(string(config))
	if err != nil {
		return err
	}
	_, err = m.handler(t, &admittest.Case{Config: document})
	return err
}

// handler makes the plugin with the fakes and the configuration of a case.
func (m member) handler(t *testing.T, c *admittest.Case) (admit.Handler, error) {
	t.Helper()
	env, err := c.Environment()
	if err != nil {
		t.Fatalf("Setting up fakes: %v", err)
	}
	t.Cleanup(env.Close)
	deps, err := env.Deps(m.Plugin, c.Features)
	if err != nil {
		t.Fatalf("Setting up fakes: %v", err)
	}
	return m.New(deps, env.Config)
}

// phases returns the phases in which the plugin handles requests, with the configuration of any of its cases.
func (m member) phases(t *testing.T) string {
	t.Helper()
	var mutating, validating bool
	for _, c := range m.cases(t) {
		if h, err := m.handler(t, c); err == nil {
			mutating, validating = mutating || h.Mutate != nil, validating || h.Validate != nil
		}
	}
	switch {
	case mutating && validating:
		return "mutating, validating"
	case mutating:
		return "mutating"
	case validating:
		return "validating"
	}
	return "none"
}

const tableBegin, tableEnd = "<!-- plugins:begin -->\n", "<!-- plugins:end -->"

// TestReadmeTable compares the table of plugins in the project's README with the list. The flag -update
// writes the table.
func TestReadmeTable(t *testing.T) {
	file := filepath.Join("..", "..", "README.md")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("Reading the README: %v", err)
	}
	before, rest, ok := strings.Cut(string(text), tableBegin)
	table, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok || !ok2 {
		t.Fatalf("Got a README without %q and %q", tableBegin, tableEnd)
	}
	want := "| plugin | family | phases | on by default in kube-apiserver | |\n|---|---|---|---|---|\n"
	for _, m := range members() {
		defaultOn := ""
		if upstreamByName()[m.Name].defaultOn {
			defaultOn = "yes"
		}
		want += fmt.Sprintf("| [%s](pkg/admissions/%s/README.md) | `%s` | %s | %s | %s |\n",
			m.Name, filepath.ToSlash(m.folder()), m.family, m.phases(t), defaultOn, m.readme(t).summary)
	}
	if table == want {
		return
	}
	if !*update {
		t.Fatalf("The table is not the list; run go test ./pkg/admissions -run TestReadmeTable -update (- README, + list):\n%s", cmp.Diff(table, want))
	}
	if err := os.WriteFile(file, []byte(before+tableBegin+want+tableEnd+after), 0o644); err != nil {
		t.Fatalf("Writing the README: %v", err)
	}
}
