package twoservers

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/postern-dev/postern/internal/ring"
)

const (
	// settleBound is the maximum time after the set-up of a scenario until a server gives the expected answer. Plugins
	// observe new objects through a watch.
	settleBound = 10 * time.Second
	settlePause = 50 * time.Millisecond
	// realPause is the pause between requests that are sent for real. The limiters of EventRateLimit give a token back each
	// second, and a refused request may have taken the tokens of the other limiters.
	realPause = 1500 * time.Millisecond
)

// TestTwoServers plays every scenario on both servers. Each plugin has its own pair of servers. The two servers differ
// only in where this plugin runs: in the API server or in Postern.
func TestTwoServers(t *testing.T) {
	ring.Second(t, "two API servers for each plugin, five minutes")
	t.Parallel()
	for _, plugin := range shared(t) {
		t.Run(plugin, func(t *testing.T) {
			t.Parallel()
			f := load(t, plugin)
			p := &pair{file: f, plugin: plugin, configs: f.write(t, plugin)}
			p.start(t)
			for i := range f.Scenarios {
				s := &f.Scenarios[i]
				t.Run(s.Name, func(t *testing.T) { p.play(t, s) })
			}
		})
	}
}

// play plays a scenario on both servers.
func (p *pair) play(t *testing.T, s *scenario) {
	t.Helper()
	defer func() {
		p.inTree.cleanUp(t, s)
		p.postern.cleanUp(t, s)
	}()
	p.inTree.setUp(t, s)
	if s != p.called {
		p.postern.setUp(t, s)
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
}

// settled plays a step in a dry run until the answer is the expected one or settleBound has passed, and then plays the
// step for real. A step with try is repeated without dry run, or is sent only once.
func (s *server) settled(t *testing.T, st *step, w want, namespace string) answer {
	t.Helper()
	pause := settlePause
	if st.Try == tryReal {
		pause = realPause
	}
	for end := time.Now().Add(settleBound); st.Try != tryOnce && time.Now().Before(end); time.Sleep(pause) {
		a, err := s.play(t.Context(), st, namespace, st.Try != tryReal)
		if err != nil {
			t.Fatalf("Trying a step: %v", err)
		}
		if st.Try == tryReal && w.check(a) == nil {
			return a
		}
		if st.Try == "" && st.ofDryRun(w).check(a) == nil {
			break
		}
	}
	a, err := s.play(t.Context(), st, namespace, st.DryRun)
	if err != nil {
		t.Fatalf("Playing a step: %v", err)
	}
	return a
}

// play sends the request of a step and reads the stored object after the request.
func (s *server) play(ctx context.Context, st *step, namespace string, dryRun bool) (answer, error) {
	o, verb := st.object()
	at, err := s.find(o, namespace)
	if err != nil {
		return answer{}, err
	}
	req, err := s.request(ctx, st, at, namespace)
	if err != nil {
		return answer{}, err
	}
	if dryRun && verb != "connect" {
		req.query.Set("dryRun", "All")
	}
	r, err := s.send(ctx, req)
	if err != nil {
		return answer{}, err
	}
	a := newAnswer(r)
	generated := (&unstructured.Unstructured{Object: o}).GetGenerateName()
	switch {
	case dryRun && a.allowed() && r.body["kind"] != "Status":
		a.object = r.body
	case !dryRun:
		if at.name == "" && a.allowed() {
			at.name = (&unstructured.Unstructured{Object: r.body}).GetName()
		}
		if at.name == "" {
			break
		}
		if a.object, err = s.get(ctx, at); err != nil {
			return answer{}, err
		}
	}
	a.normalise(generated)
	return a, nil
}

// ofDryRun removes the expectations that cannot be checked in a dry run. The answer to a subresource request may be only
// a Status, and no object is stored.
func (s *step) ofDryRun(w want) want {
	if o, _ := s.object(); s.Delete != nil || o["kind"] == "Binding" || o["kind"] == "Eviction" || !w.Allowed {
		w.Object = nil
	}
	return w
}

func (s *server) setUp(t *testing.T, sc *scenario) {
	t.Helper()
	for _, o := range sc.Setup {
		if err := s.make(t.Context(), o, sc.namespace()); err != nil {
			t.Fatalf("Setting %q up: %v", sc.Name, err)
		}
	}
}

// cleanUp deletes the objects outside the namespace of the scenario, so that the next scenario does not observe them.
func (s *server) cleanUp(t *testing.T, sc *scenario) {
	t.Helper()
	objects := slices.Clone(sc.Setup)
	for _, st := range sc.Steps {
		if st.Create != nil && !st.DryRun && st.Want.Allowed {
			objects = append(objects, st.Create)
		}
	}
	for _, o := range objects {
		at, err := s.find(o, sc.namespace())
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(at.collection, "/namespaces/") && at.name != "" {
			continue
		}
		if _, err := s.send(t.Context(), request{method: http.MethodDelete, path: at.item()}); err != nil {
			t.Errorf("Deleting %s: %v", at.item(), err)
		}
	}
}
