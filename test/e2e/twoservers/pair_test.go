package twoservers

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/e2e"
)

// pair holds the two API servers that are compared for a plugin.
type pair struct {
	*file
	plugin          string
	configs         configs
	inTree, postern *server
	webhook         *e2e.Postern
	// called is the scenario whose set-up already exists on the server with Postern.
	called *scenario
}

func (f *file) needsBefore() bool {
	for _, s := range f.Scenarios {
		if len(s.Before) > 0 {
			return true
		}
	}
	return false
}

// backendPlaceholder stands in a configuration for the path of a kubeconfig for an e2e.ImageBackend.
const backendPlaceholder = "{backend}"

// configs are the paths of the files for --admission-control-config-file, or empty.
type configs struct{ inTree, postern string }

// write writes the plugin's configurations, if any, to files and returns their paths.
func (f *file) write(t *testing.T, plugin string) configs {
	t.Helper()
	if f.Configuration == nil {
		return configs{}
	}
	path := writeConfiguration(t, plugin, f.Configuration)
	if f.PosternConfiguration == nil {
		return configs{path, path}
	}
	ours := maps.Clone(f.Configuration)
	maps.Copy(ours, f.PosternConfiguration)
	return configs{path, writeConfiguration(t, plugin, ours)}
}

func writeConfiguration(t *testing.T, plugin string, configuration object) string {
	t.Helper()
	data, err := yaml.Marshal(object{
		"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
		"plugins": []object{{"name": plugin, "configuration": configuration}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(data, []byte(backendPlaceholder)) {
		data = bytes.ReplaceAll(data, []byte(backendPlaceholder), []byte(e2e.StartImageBackend(t).Kubeconfig))
	}
	path := filepath.Join(t.TempDir(), "admission.yaml")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// gates returns the feature gate flags, which all three processes get.
func (p *pair) gates() []string {
	if p.FeatureGates == "" {
		return nil
	}
	return []string{"--feature-gates=" + p.FeatureGates}
}

// ofPlugin returns the flags of a process that runs the plugin: the in-tree API server or Postern.
func (p *pair) ofPlugin(config string) []string {
	if config == "" {
		return p.PluginFlags
	}
	return append([]string{"--admission-control-config-file=" + config}, p.PluginFlags...)
}

// without returns the flags of an API server on which the in-tree plugin is disabled.
func (p *pair) without() []string {
	return slices.Concat(p.APIServerFlags, p.gates(), []string{"--disable-admission-plugins=" + p.plugin})
}

// with returns the flags of an API server on which the in-tree plugin is enabled.
func (p *pair) with() []string {
	return slices.Concat(p.APIServerFlags, p.gates(), []string{"--enable-admission-plugins=" + p.plugin}, p.ofPlugin(p.configs.inTree))
}

// start starts both servers in parallel, and then Postern. The objects that must exist before the plugin is enabled
// are created after the servers have started and before Postern starts. If there are such objects, the in-tree server
// is first started without the plugin, and then restarted with it.
func (p *pair) start(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	flags := p.with()
	if p.needsBefore() {
		flags = p.without()
	}
	started := make(chan struct{})
	var plane *controlplane.ControlPlane
	var err error
	start := func(flags []string) {
		plane, err = controlplane.Start(t.Context(), controlplane.Options{Dir: dir, APIServerFlags: flags, Progress: t.Output()})
	}
	go func() {
		defer close(started)
		start(flags)
	}()
	t.Cleanup(func() {
		<-started
		p.stop(t, plane)
	})
	c := suite.Start(t, controlplane.Options{APIServerFlags: p.without()})
	if <-started; err != nil {
		t.Fatalf("Starting the API server with its own %s: %v", p.plugin, err)
	}
	p.inTree, p.postern = newServer(t, plane), newServer(t, c.ControlPlane)
	p.prepare(t)
	if p.needsBefore() {
		p.stop(t, plane)
		if start(p.with()); err != nil {
			t.Fatalf("Starting the API server with its own %s: %v", p.plugin, err)
		}
		p.inTree.plane = plane
	}
	p.startPostern(t, c)
}

// stop stops the in-tree server.
func (p *pair) stop(t *testing.T, plane *controlplane.ControlPlane) {
	t.Helper()
	if plane == nil {
		return
	}
	if t.Failed() {
		t.Logf("The ends of the logs of the API server with its own %s:\n%s", p.plugin, plane.Logs())
	}
	if err := plane.Stop(); err != nil {
		t.Errorf("Stopping the API server with its own %s: %v", p.plugin, err)
	}
}

// startWebhook starts the third-party webhook of the scenario, if any. The set-up of the scenario registers the
// webhook.
func (s *scenario) startWebhook(t *testing.T) {
	t.Helper()
	if s.LaterWebhook == nil {
		return
	}
	policy := admissionregistrationv1.NeverReinvocationPolicy
	if s.LaterWebhook.Reinvoked {
		policy = admissionregistrationv1.IfNeededReinvocationPolicy
	}
	w := e2e.StartWebhook(t, s.LaterWebhook.Patch)
	if resource := s.LaterWebhook.Resource; resource != "" {
		group, name := path.Split(resource)
		gv, err := schema.ParseGroupVersion(strings.TrimSuffix(group, "/"))
		if err != nil {
			t.Fatalf("The later webhook of %q: %v", s.Name, err)
		}
		w.Resource = gv.WithResource(name)
	}
	c := w.Configuration("zz-"+s.namespace(), s.namespace(), policy)
	registration, err := runtime.DefaultUnstructuredConverter.ToUnstructured(c)
	if err != nil {
		t.Fatal(err)
	}
	s.Setup = append(s.Setup, registration)
}

// prepare creates the namespaces and the objects that must exist before the plugin is enabled.
func (p *pair) prepare(t *testing.T) {
	t.Helper()
	for i := range p.Scenarios {
		p.Scenarios[i].startWebhook(t)
	}
	for _, server := range []*server{p.inTree, p.postern} {
		for _, s := range p.Scenarios {
			ns := object{"apiVersion": "v1", "kind": "Namespace", "metadata": s.Namespace}
			for _, o := range append([]object{ns}, s.Before...) {
				if err := server.make(t.Context(), o, s.namespace()); err != nil {
					t.Fatalf("Preparing %q: %v", s.Name, err)
				}
			}
		}
	}
}

func (p *pair) startPostern(t *testing.T, c *e2e.Cluster) {
	t.Helper()
	flags := slices.Concat([]string{"--api-server-plugins=none"}, p.gates(), p.ofPlugin(p.configs.postern))
	c.Grant(t, "--enable-admission-plugins="+p.plugin)
	p.webhook = c.LaunchPostern(t, e2e.Options{Plugins: []string{p.plugin}, Flags: flags})
	p.webhook.AwaitReady(t)
	if p.plugin == "AlwaysAdmit" {
		// Postern registers no webhook for AlwaysAdmit.
		return
	}
	p.webhook.AwaitRegistered(t)
	p.awaitCalled(t)
}

// halves maps the kind of each webhook configuration to the phase in which the API server calls Postern.
var halves = map[string]string{
	"MutatingWebhookConfiguration": "mutate", "ValidatingWebhookConfiguration": "validate",
}

// awaitCalled waits until the API server calls all webhooks that Postern has registered. Therefore the first scenario
// must contain requests that match the mutating and the validating webhooks.
func (p *pair) awaitCalled(t *testing.T) {
	t.Helper()
	s := &p.Scenarios[0]
	p.postern.setUp(t, s)
	e2e.Eventually(t, settleBound, "the API server calls Postern for the first scenario", func(ctx context.Context) error {
		var last answer
		for i := range s.Steps {
			var err error
			if last, err = p.postern.play(ctx, &s.Steps[i], s.namespace(), s.Steps[i].Try == ""); err != nil {
				return err
			}
		}
		for kind, phase := range halves {
			registered := p.webhook.Metric(t, "postern_webhook_registered", fmt.Sprintf("type=%q", kind)) > 0
			if registered && p.webhook.Metric(t, "postern_webhook_requests_total", fmt.Sprintf("phase=%q", phase)) == 0 {
				return fmt.Errorf("it was not called to %s; the last answer was %s", phase, verdict(last.code, last.reason, last.message))
			}
		}
		return nil
	})
	p.called = s
}
