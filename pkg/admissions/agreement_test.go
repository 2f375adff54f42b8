package admissions

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	yamlv3 "go.yaml.in/yaml/v3"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"sigs.k8s.io/yaml"

	"github.com/postern-dev/postern/internal/seed"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

const admissionConfiguration = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"

// TestCheckConfigAgreesWithTheStart passes the configuration of every case of every plugin to CheckConfig and to the
// functions that a process calls at its start: in a file of its own, inside an AdmissionConfiguration, or as the whole
// file. Then it makes one random change in the file. In each case the start fails exactly if there are mistakes, and its
// error is one of them. In a file of its own, the configuration has the outcome of the case, also with an empty document
// after it.
func TestCheckConfigAgreesWithTheStart(t *testing.T) {
	chance := seed.Chance(t)
	for _, m := range members() {
		t.Run(m.Name, func(t *testing.T) {
			dir, seen := t.TempDir(), map[string]bool{}
			for _, c := range m.cases(t) {
				if len(c.Config) == 0 || len(c.Flags) > 0 {
					continue
				}
				env, err := c.Environment()
				if err != nil {
					t.Fatalf("%s: %v", c.File, err)
				}
				defer env.Close()
				a := agreement{m: m, c: c, env: env, dir: dir}
				a.compareWithCase(t)
				text := asBlocks(env.Config)
				whole, plugin := a.form(chance, text)
				if !seen[text] {
					a.compare(t, whole, plugin)
				}
				seen[text] = true
				if plugin == "" {
					whole = mutated(chance, whole)
				}
				a.compare(t, whole, mutated(chance, plugin))
			}
		})
	}
}

// asBlocks returns JSON as YAML with a line for each value. Other texts are unchanged.
func asBlocks(text []byte) string {
	if out, err := yaml.JSONToYAML(text); err == nil && strings.HasPrefix(string(text), "{") {
		return string(out)
	}
	return string(text)
}

// agreement compares CheckConfig with the start of a process, in the environment of a case.
type agreement struct {
	m   member
	c   *admittest.Case
	env *admittest.Environment
	dir string
}

// deps returns the dependencies of a process. Each process has its own informers.
func (a agreement) deps() (admit.Deps, error) {
	d, err := a.env.Deps(a.m.Plugin, a.c.Features)
	d.Informers = informers.NewSharedInformerFactory(a.env.Client, 0)
	d.CustomInformers = dynamicinformer.NewDynamicSharedInformerFactory(a.env.Dynamic, 0)
	d.OptionalInformers = d.CustomInformers
	return d, err
}

// form returns a configuration file with a configuration of the plugin, in one of the three forms, and the text of p.yaml.
func (a agreement) form(chance *rand.Rand, text string) (whole, plugin string) {
	entry := admissionConfiguration + "- name: " + a.m.Name + "\n  "
	switch chance.IntN(3) {
	case 0:
		return entry + "path: p.yaml\n", text
	case 1:
		return entry + "configuration:\n    " + strings.ReplaceAll(text, "\n", "\n    "), ""
	default:
		return text, ""
	}
}

// compare compares the two for the text of a configuration file, and of the file p.yaml beside it. It returns the
// mistakes.
func (a agreement) compare(t *testing.T, text, plugin string) []Mistake {
	t.Helper()
	file := filepath.Join(a.dir, "c.yaml")
	write(t, file, text)
	if strings.Contains(text, "p.yaml") {
		write(t, filepath.Join(a.dir, "p.yaml"), plugin)
	}
	checked, err := Families().CheckConfig(file, configuredIn(text), a.deps)
	if err != nil {
		t.Fatalf("%s: %v", a.c.File, err)
	}
	var mistakes []string
	for _, m := range checked.Mistakes {
		mistakes = append(mistakes, m.String())
	}
	startErr := a.start(file, configuredIn(text))
	switch {
	case (startErr == nil) != (len(mistakes) == 0):
	case startErr == nil:
		return nil
	case !isConfigError(startErr):
		// The error names no field, so the start names no line.
		return checked.Mistakes
	case slices.Contains(mistakes, strings.Split(startErr.Error(), "\n")[0]):
		return checked.Mistakes
	}
	t.Errorf("%s: got mistakes %q and from the start the error %v, want the same, for the file\n%s\nwith p.yaml\n%s", a.c.File, mistakes, startErr, text, plugin)
	return checked.Mistakes
}

func isConfigError(err error) bool {
	_, ok := errors.AsType[*admit.ConfigError](err)
	return ok
}

// start processes the file as a process does that has these plugins enabled.
func (a agreement) start(file string, enabled []string) error {
	configs, _, err := Families().LoadConfigs(file, enabled)
	if err != nil {
		return err
	}
	deps, err := a.deps()
	if err != nil {
		return err
	}
	_, err = Families().Services(deps, enabled, configs)
	return err
}

// configuredIn returns the plugins for which the text of a configuration file has an entry.
func configuredIn(text string) []string {
	var file map[string]any
	_ = yaml.Unmarshal([]byte(text), &file)
	has := map[string]bool{}
	if file["kind"] == "AdmissionConfiguration" && file["apiVersion"] == "apiserver.config.k8s.io/v1" {
		entries, _ := file["plugins"].([]any)
		for _, e := range entries {
			if e, ok := e.(map[string]any); ok {
				has[fmt.Sprint(e["name"])] = true
			}
		}
	} else {
		for key := range file {
			has["ImagePolicyWebhook"] = has["ImagePolicyWebhook"] || strings.EqualFold(key, "imagePolicy")
			has["PodNodeSelector"] = has["PodNodeSelector"] || strings.EqualFold(key, "podNodeSelectorPluginConfig")
		}
	}
	return slices.DeleteFunc(Families().Names(), func(name string) bool { return !has[name] })
}

// compareWithCase compares the mistakes in the configuration of the case with the error that the case wants.
func (a agreement) compareWithCase(t *testing.T) {
	t.Helper()
	text, want := string(a.env.Config)+"\n---\n# The end.\n", ""
	if a.c.Want != nil && a.c.Want.ConfigError != "" {
		text, want = string(a.env.Config), strings.Split(a.c.Want.ConfigError, "\n")[0]
	}
	var got []string
	for _, m := range a.compare(t, admissionConfiguration+"- {name: "+a.m.Name+", path: p.yaml}\n", text) {
		_, text, _ := strings.Cut(m.String(), "plugin "+a.m.Name+": ")
		got = append(got, text)
		if m.Line < 1 || filepath.Base(m.File) != "p.yaml" {
			t.Errorf("%s: got file %s and line %d", a.c.File, m.File, m.Line)
		}
	}
	switch {
	case want == "" && len(got) > 0:
		t.Errorf("%s: got mistakes %q, want none", a.c.File, got)
	case want != "" && !slices.Contains(got, want):
		t.Errorf("%s: got mistakes %q, want %q", a.c.File, got, want)
	}
}

// mutated returns a text with one random change.
func mutated(chance *rand.Rand, text string) string {
	switch chance.IntN(8) {
	case 0:
		return text[:chance.IntN(len(text)+1)]
	case 1:
		return text + pick(chance, "---\n", "\n---\n# The end.\n", "...\n", "---\n---\n", "---\na: 1\n", "---\nb: [\n", "---\n"+text)
	case 2:
		return pick(chance, "\ufeff", "---\n", "# A comment.\n---\n", "---\n---\n") + text
	case 3:
		return strings.ReplaceAll(text, "\n", "\r\n")
	}
	var document yamlv3.Node
	if err := yamlv3.Unmarshal([]byte(text), &document); err != nil {
		return text[:chance.IntN(len(text)+1)]
	}
	mutateNode(chance, nodesOf(&document))
	out, err := yamlv3.Marshal(&document)
	if err != nil {
		return text
	}
	return string(out)
}

func pick(chance *rand.Rand, values ...string) string { return values[chance.IntN(len(values))] }

// nodesOf returns a node and all nodes below.
func nodesOf(n *yamlv3.Node) []*yamlv3.Node {
	all := []*yamlv3.Node{n}
	for _, child := range n.Content {
		all = append(all, nodesOf(child)...)
	}
	return all
}

// mutateNode deletes, duplicates, renames or replaces one of the nodes, or the values of kind and apiVersion.
func mutateNode(chance *rand.Rand, all []*yamlv3.Node) {
	parents := slices.DeleteFunc(slices.Clone(all), func(n *yamlv3.Node) bool { return len(n.Content) == 0 || n.Kind == yamlv3.DocumentNode })
	if len(parents) == 0 {
		return
	}
	parent := parents[chance.IntN(len(parents))]
	size := 1
	if parent.Kind == yamlv3.MappingNode {
		size = 2
	}
	i := chance.IntN(len(parent.Content)/size) * size
	switch item := parent.Content[i : i+size]; chance.IntN(5) {
	case 0:
		parent.Content = slices.Delete(slices.Clone(parent.Content), i, i+size)
	case 1:
		parent.Content = slices.Concat(parent.Content, item)
	case 2:
		named := *item[0]
		named.Value = pick(chance, strings.ToUpper(named.Value), "apiVersion", "kind", "name", "imagePolicy", "podNodeSelectorPluginConfig", "ImagePolicyWebhook", "PodSecurity", "x")
		parent.Content[i] = &named
	case 3:
		for j := 0; j+1 < len(parent.Content); j += size {
			if key := parent.Content[j].Value; size == 2 && (key == "kind" || key == "apiVersion") {
				parent.Content[j+1] = scalar(pick(chance, "AdmissionConfiguration", "v1", "apiserver.config.k8s.io/v1", "5", "null"))
			}
		}
	default:
		value := pick(chance, "null", "5", "-1", "true", "x", "a.yaml", "1h")
		parent.Content[i+size-1] = scalar(value)
		if chance.IntN(3) == 0 {
			parent.Content[i+size-1] = copied(all[chance.IntN(len(all)-1)+1])
		}
	}
}

func scalar(value string) *yamlv3.Node { return &yamlv3.Node{Kind: yamlv3.ScalarNode, Value: value} }

func copied(n *yamlv3.Node) *yamlv3.Node {
	out := *n
	out.Content = nil
	for _, child := range n.Content {
		out.Content = append(out.Content, copied(child))
	}
	return &out
}
