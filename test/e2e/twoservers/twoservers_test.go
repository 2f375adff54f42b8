package twoservers

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/e2e"
)

const (
	// settleBound is how long a server may take until it answers as wanted, after the set-up of a scenario:
	// plugins see new objects through a watch.
	settleBound = 10 * time.Second
	settlePause = 50 * time.Millisecond
)

// TestTwoServers plays every scenario on both servers. Each plugin has two servers of its own, in which it
// alone is not where it is in the other.
func TestTwoServers(t *testing.T) {
	t.Parallel()
	for _, plugin := range shared(t) {
		t.Run(plugin, func(t *testing.T) {
			t.Parallel()
			f := load(t, plugin)
			p := &pair{file: f, plugin: plugin, config: f.write(t, plugin)}
			p.start(t)
			for i := range f.Scenarios {
				s := &f.Scenarios[i]
				t.Run(s.Name, func(t *testing.T) { p.play(t, s) })
			}
		})
	}
}

// pair is the two servers of a plugin.
type pair struct {
	*file
	plugin, config  string
	inTree, postern *server
	webhook         *e2e.Postern
	// called is the scenario that is set up already on the server with Postern.
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

// write makes the file for --admission-control-config-file, if there is a configuration, and returns its name.
func (f *file) write(t *testing.T, plugin string) string {
	t.Helper()
	if f.Configuration == nil {
		return ""
	}
	data, err := yaml.Marshal(object{
		"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
		"plugins": []object{{"name": plugin, "configuration": json.RawMessage(f.Configuration)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "admission.yaml")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// common are the flags that both API servers have.
func (p *pair) common() []string {
	flags := p.APIServerFlags
	if p.FeatureGates != "" {
		flags = append(flags, "--feature-gates="+p.FeatureGates)
	}
	return flags
}

func (p *pair) without() []string {
	return append(p.common(), "--disable-admission-plugins="+p.plugin)
}

// with are the flags of the server that has the plugin of its own.
func (p *pair) with() []string {
	flags := append(p.common(), "--enable-admission-plugins="+p.plugin)
	if p.config != "" {
		flags = append(flags, "--admission-control-config-file="+p.config)
	}
	return append(flags, p.PluginFlags...)
}

// start starts both servers at a time, and Postern when what is to be there before it is there.
func (p *pair) start(t *testing.T) {
	t.Helper()
	before := p.needsBefore()
	dir := t.TempDir()
	first := p.with()
	if before {
		first = p.without()
	}
	started := make(chan error, 1)
	var plane *controlplane.ControlPlane
	go func() {
		var err error
		plane, err = controlplane.Start(t.Context(), controlplane.Options{Dir: dir, APIServerFlags: first, Progress: t.Output()})
		started <- err
	}()
	c := suite.Start(t, controlplane.Options{APIServerFlags: p.without()})
	if err := <-started; err != nil {
		t.Fatalf("Starting the API server with its own %s: %v", p.plugin, err)
	}
	p.inTree, p.postern = newServer(t, plane), newServer(t, c.ControlPlane)
	for i := range p.Scenarios {
		p.Scenarios[i].startWebhook(t)
	}
	p.prepare(t)
	if before {
		if err := plane.Stop(); err != nil {
			t.Fatalf("Stopping the API server without %s: %v", p.plugin, err)
		}
		var err error
		plane, err = controlplane.Start(t.Context(), controlplane.Options{Dir: dir, APIServerFlags: p.with(), Progress: t.Output()})
		if err != nil {
			t.Fatalf("Starting the API server with its own %s: %v", p.plugin, err)
		}
		p.inTree.plane = plane
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("The ends of the logs of the API server with its own %s:\n%s", p.plugin, plane.Logs())
		}
		if err := plane.Stop(); err != nil {
			t.Errorf("Stopping the API server with its own %s: %v", p.plugin, err)
		}
	})
	p.startPostern(t, c)
}

// startWebhook starts the webhook of somebody else, if there is one in the scenario. To register it belongs to
// the set-up.
func (s *scenario) startWebhook(t *testing.T) {
	t.Helper()
	if s.LaterWebhook == nil {
		return
	}
	policy := admissionregistrationv1.NeverReinvocationPolicy
	if s.LaterWebhook.Reinvoked {
		policy = admissionregistrationv1.IfNeededReinvocationPolicy
	}
	c := e2e.StartWebhook(t, s.LaterWebhook.Patch).Configuration("zz-"+s.namespace(), s.namespace(), policy)
	registration, err := runtime.DefaultUnstructuredConverter.ToUnstructured(c)
	if err != nil {
		t.Fatal(err)
	}
	s.Setup = append(s.Setup, registration)
}

// prepare makes the namespaces and what was there before the plugin.
func (p *pair) prepare(t *testing.T) {
	t.Helper()
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
	flags := append([]string{"--api-server-plugins=none", "--admission-control-config-file=" + p.config}, p.PluginFlags...)
	if p.FeatureGates != "" {
		flags = append(flags, "--feature-gates="+p.FeatureGates)
	}
	p.webhook = c.LaunchPostern(t, e2e.Options{Plugins: []string{p.plugin}, Flags: flags})
	p.webhook.AwaitReady(t)
	if p.plugin == "AlwaysAdmit" {
		// There is nothing that it would be called for.
		return
	}
	p.webhook.AwaitRegistered(t)
	p.awaitCalled(t)
}

// halves are the two ways in which Postern is called, by the kind of configuration.
var halves = map[string]string{
	"MutatingWebhookConfiguration": "mutate", "ValidatingWebhookConfiguration": "validate",
}

// awaitCalled waits until the API server calls all that Postern has registered. For this the first scenario has
// to have requests that each half is called for.
func (p *pair) awaitCalled(t *testing.T) {
	t.Helper()
	s := &p.Scenarios[0]
	p.setUp(t, p.postern, s)
	e2e.Eventually(t, settleBound, "the API server calls Postern for the first scenario", func(ctx context.Context) error {
		var last answer
		for i := range s.Steps {
			var err error
			if last, err = p.postern.play(ctx, &s.Steps[i], s.namespace(), true); err != nil {
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

// play plays a scenario on both servers.
func (p *pair) play(t *testing.T, s *scenario) {
	t.Helper()
	p.setUp(t, p.inTree, s)
	if s != p.called {
		p.setUp(t, p.postern, s)
	}
	for i := range s.Steps {
		st := &s.Steps[i]
		inTree := p.inTree.settled(t, st, st.ofInTree(), s.namespace())
		postern := p.postern.settled(t, st, st.Want, s.namespace())
		if err := st.ofInTree().check(inTree); err != nil {
			t.Errorf("Step %d, with kube-apiserver's own plugin: %v", i+1, err)
		}
		if err := st.Want.check(postern); err != nil {
			t.Errorf("Step %d, with Postern: %v", i+1, err)
		}
		if want := !st.Want.Allowed && st.Want.By == ""; postern.byPostern != want {
			t.Errorf("Step %d: that Postern denies it is %t, want %t", i+1, postern.byPostern, want)
		}
		if err := st.compare(inTree, postern); err != nil {
			t.Errorf("Step %d: %v", i+1, err)
		}
	}
	for _, server := range []*server{p.inTree, p.postern} {
		p.cleanUp(t, server, s)
	}
}

// settled plays a step in a dry run until the answer is the wanted one, or long enough, and then plays it.
func (s *server) settled(t *testing.T, st *step, w want, namespace string) answer {
	t.Helper()
	for end := time.Now().Add(settleBound); time.Now().Before(end); time.Sleep(settlePause) {
		a, err := s.play(t.Context(), st, namespace, true)
		if err != nil {
			t.Fatalf("Playing a step in a dry run: %v", err)
		}
		if st.ofDryRun(w).check(a) == nil {
			break
		}
	}
	a, err := s.play(t.Context(), st, namespace, st.DryRun)
	if err != nil {
		t.Fatalf("Playing a step: %v", err)
	}
	return a
}

// ofDryRun leaves out what a dry run does not tell: the answer to a request for a subresource may be a mere
// status, and nothing is stored.
func (s *step) ofDryRun(w want) want {
	if o, _ := s.object(); s.Delete != nil || o["kind"] == "Binding" || o["kind"] == "Eviction" || !w.Allowed {
		w.Object = nil
	}
	return w
}

func (p *pair) setUp(t *testing.T, server *server, s *scenario) {
	t.Helper()
	for _, o := range s.Setup {
		if err := server.make(t.Context(), o, s.namespace()); err != nil {
			t.Fatalf("Setting %q up: %v", s.Name, err)
		}
	}
}

// cleanUp removes what is in the namespace of no scenario: the next one is not to see it.
func (p *pair) cleanUp(t *testing.T, server *server, s *scenario) {
	t.Helper()
	objects := s.Setup
	for _, st := range s.Steps {
		if st.Create != nil && !st.DryRun && st.Want.Allowed {
			objects = append(objects, st.Create)
		}
	}
	for _, o := range objects {
		at, err := server.find(o, s.namespace())
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(at.collection, "/namespaces/") && at.name != "" {
			continue
		}
		if _, err := server.send(t.Context(), request{method: "DELETE", path: at.item()}); err != nil {
			t.Errorf("Deleting %s: %v", at.item(), err)
		}
	}
}
