package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/yaml"

	"github.com/postern-dev/postern/internal/ring"
	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/controlplane/walkthrough"
	"github.com/postern-dev/postern/test/e2e"
)

// trial is the section "Try it" of a plugin's README.
type trial struct {
	plugin string
	values chartValues
	steps  []walkthrough.Step
}

// chartValues are the values of the Helm chart that the sections use.
type chartValues struct {
	Plugins           []string                  `json:"plugins"`
	Configuration     map[string]map[string]any `json:"configuration"`
	FeatureGates      map[string]bool           `json:"featureGates"`
	ExtraArgs         []string                  `json:"extraArgs"`
	ExtraVolumes      []any                     `json:"extraVolumes"`
	ExtraVolumeMounts []any                     `json:"extraVolumeMounts"`
}

// replaced has the plugins that are off by default and act only if the API server runs no NamespaceLifecycle.
var replaced = []string{"NamespaceAutoProvision", "NamespaceExists"}

// TestReadmesCanBeTried runs the commands in the section "Try it" of each README against a Postern with the values of that
// section, until they print what the README says, and checks that they leave nothing. A plugin that the API server runs by default,
// and that has no configuration which has an effect then, runs beside an API server without these plugins.
func TestReadmesCanBeTried(t *testing.T) {
	ring.Second(t, "it starts a Postern for each plugin, and needs openssl")
	t.Parallel()
	var all []struct {
		Name        string
		OnByDefault bool
	}
	c := suite.Start(t, controlplane.Options{ControllerManager: true})
	if err := json.Unmarshal([]byte(suite.Output(t, "plugins", "-o", "json", "--kubeconfig="+c.Kubeconfig(controlplane.Admin))), &all); err != nil {
		t.Fatal(err)
	}
	var usual, bare []trial
	var defaults []string
	for _, p := range all {
		if p.OnByDefault {
			defaults = append(defaults, p.Name)
		}
		r := readTrial(t, p.Name)
		switch {
		case len(r.steps) == 0:
			// The test of the READMEs has the reasons.
		case p.OnByDefault && r.values.Configuration == nil, slices.Contains(replaced, p.Name):
			bare = append(bare, r)
		default:
			usual = append(usual, r)
		}
	}
	if len(usual)+len(bare) < 40 {
		t.Errorf("Only %d READMEs have commands", len(usual)+len(bare))
	}
	t.Run("beside the usual plugins", func(t *testing.T) {
		t.Parallel()
		for _, r := range usual {
			t.Run(r.plugin, func(t *testing.T) { r.run(t, c) })
		}
	})
	t.Run("instead of the API server's plugins", func(t *testing.T) {
		t.Parallel()
		c := suite.Start(t, controlplane.Options{
			APIServerFlags: []string{
				"--disable-admission-plugins=" + strings.Join(defaults, ","),
				"--feature-gates=GenericWorkload=true", "--runtime-config=scheduling.k8s.io/v1beta1=true",
			},
			ControllerManager: true,
			// Without NamespaceLifecycle, this controller may create its ConfigMap again in a namespace that is being deleted.
			ControllerManagerFlags: []string{"--controllers=*,-root-ca-certificate-publisher-controller"},
		})
		for _, r := range bare {
			t.Run(r.plugin, func(t *testing.T) { r.run(t, c) })
		}
	})
}

// readTrial reads the README of a plugin. The README's test checks that it has the section.
func readTrial(t *testing.T, plugin string) trial {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "pkg", "admissions", "*", strings.ToLower(plugin), "README.md"))
	if err != nil || len(files) != 1 {
		t.Fatalf("Got the READMEs %q of %s, error %v", files, plugin, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	r := trial{plugin: plugin}
	section, err := walkthrough.Section(string(text), "Try it")
	if err != nil {
		t.Fatalf("%s: %v", plugin, err)
	}
	for _, b := range walkthrough.Blocks(section) {
		switch b.Kind {
		case "yaml":
			if err := yaml.UnmarshalStrict([]byte(b.Text), &r.values); err != nil {
				t.Errorf("%s: %v", plugin, err)
			}
		case "console":
			r.steps = append(r.steps, b.Steps()...)
		}
	}
	return r
}

// run starts a Postern with the values, as the chart does, and runs the commands.
func (r trial) run(t *testing.T, c *e2e.Cluster) {
	t.Helper()
	flags := []string{"--exempt-namespaces=kube-system", "--authorization-cache-ttl=5s"}
	if r.values.Configuration != nil {
		var entries []map[string]any
		for name, configuration := range r.values.Configuration {
			entries = append(entries, map[string]any{"name": name, "configuration": configuration})
		}
		text, err := yaml.Marshal(entries)
		if err != nil {
			t.Fatal(err)
		}
		flags = append(flags, configured(t, string(text)))
	}
	for gate, on := range r.values.FeatureGates {
		flags = append(flags, "--feature-gates="+gate+"="+strconv.FormatBool(on))
	}
	before := objects(t, c)
	p := c.StartPostern(t, e2e.Options{Plugins: r.values.Plugins, Flags: append(flags, r.values.ExtraArgs...)})
	defer func() {
		p.Stop(t)
		removeWebhooks(t, c)
		checkNothingIsLeft(t, c, before)
	}()
	awaitConfigurations(t, c)
	dir := t.TempDir()
	for _, step := range r.steps {
		repeatUntil(t, c, dir, step.Command, step.Prints)
	}
}

// removeWebhooks deletes the webhooks of a trial, as an uninstall does.
func removeWebhooks(t *testing.T, c *e2e.Cluster) {
	t.Helper()
	hooks := c.Admin.AdmissionregistrationV1()
	err := errors.Join(
		hooks.MutatingWebhookConfigurations().DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}),
		hooks.ValidatingWebhookConfigurations().DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	if err != nil {
		t.Errorf("Deleting the webhooks: %v", err)
	}
}

// checkNothingIsLeft fails the test if there is an object that was not there before.
func checkNothingIsLeft(t *testing.T, c *e2e.Cluster, before []string) {
	t.Helper()
	left := slices.DeleteFunc(objects(t, c), func(o string) bool { return slices.Contains(before, o) })
	if len(left) > 0 {
		t.Errorf("The commands leave %q", left)
	}
}

// objects lists the objects outside of namespaces, the namespaces among them, and those in the namespace default.
func objects(t *testing.T, c *e2e.Cluster) []string {
	t.Helper()
	lists, err := c.Admin.Discovery().ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	lists = discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "delete"}}, lists)
	client := c.Dynamic(t, controlplane.Admin)
	var found []string
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			namespace := ""
			if r.Namespaced {
				namespace = metav1.NamespaceDefault
			}
			if r.Name == "events" || r.Name == "endpoints" { // Events come on their own. A list of Endpoints warns.
				continue
			}
			all, err := client.Resource(gv.WithResource(r.Name)).Namespace(namespace).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatalf("Listing %s: %v", r.Name, err)
			}
			for _, o := range all.Items {
				found = append(found, gv.WithResource(r.Name).GroupResource().String()+"/"+o.GetName())
			}
		}
	}
	return found
}

// awaitConfigurations waits until the API server calls the webhooks that are registered now. The API server observes the
// configurations of a kind in the order of their changes, so it has observed all earlier ones when it observes these two.
func awaitConfigurations(t *testing.T, c *e2e.Cluster) {
	t.Helper()
	const label = "e2e.postern.dev/probe"
	away, none := "https://127.0.0.1:1", admissionregistrationv1.SideEffectClassNone
	client := admissionregistrationv1.WebhookClientConfig{URL: &away}
	versions := []string{"v1"}
	rules := []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: versions, Resources: []string{"configmaps"}},
	}}
	only := func(value string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{label: value}}
	}
	hooks, meta := c.Admin.AdmissionregistrationV1(), metav1.ObjectMeta{Name: "probe"}
	_, err := hooks.MutatingWebhookConfigurations().Create(t.Context(), &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: meta, Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "mutating.example.com", ClientConfig: client, Rules: rules, SideEffects: &none, AdmissionReviewVersions: versions, ObjectSelector: only("mutating"),
		}},
	}, metav1.CreateOptions{})
	if err == nil {
		_, err = hooks.ValidatingWebhookConfigurations().Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: meta, Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name: "validating.example.com", ClientConfig: client, Rules: rules, SideEffects: &none, AdmissionReviewVersions: versions, ObjectSelector: only("validating"),
			}},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatalf("Registering the probe: %v", err)
	}
	for _, phase := range []string{"mutating", "validating"} {
		e2e.Eventually(t, settleBound, "the API server calls "+phase+" webhooks", func(ctx context.Context) error {
			object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "probe", Labels: map[string]string{label: phase}}}
			_, err := c.Admin.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, object, dryRun())
			if err == nil || !strings.Contains(err.Error(), phase+".example.com") {
				return errors.Join(errors.New("it does not"), err)
			}
			return nil
		})
	}
}
