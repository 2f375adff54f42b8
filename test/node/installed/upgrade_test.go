//go:build linux && upgrade

package installed_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	// mended is longer than replicas reconsider denials after the last pod of another version has gone.
	mended = 75 * time.Second
	// quiet is how long nobody may write a configuration after that.
	quiet = 15 * time.Second
)

// answer is what the API server answers.
type answer struct {
	code int
	text string
}

func (a answer) is(code int, body []byte) bool {
	return code == a.code && strings.Contains(string(body), a.text)
}

// request is a creation in a dry run that a plugin decides about.
type request struct {
	plugin, path, body string
	// decided is the answer if the plugin runs, and otherwise the answer if it does not.
	decided, otherwise answer
}

// requests are for plugins that only mutate, that only validate, and that do both, of two families.
func requests() []request {
	const pods = "/api/v1/namespaces/%s/pods?dryRun=All"
	created := answer{http.StatusCreated, ""}
	return []request{
		{"PodNodeSelector", fmt.Sprintf(pods, "selected"), podJSON(""), answer{http.StatusCreated, `"nodeSelector":{"pool":"blue"}`}, created},
		{"PodNodeSelector", fmt.Sprintf(pods, "selected"), podJSON(`"nodeSelector": {"pool": "red"}, `), answer{http.StatusForbidden, "pod node label selector conflicts"}, created},
		{"AlwaysPullImages", fmt.Sprintf(pods, "default"), podJSON(""), answer{http.StatusCreated, `"imagePullPolicy":"Always"`}, created},
		{"SecurityContextDeny", fmt.Sprintf(pods, "default"), podJSON(`"securityContext": {"runAsUser": 7}, `), answer{http.StatusForbidden, "RunAsUser is forbidden"}, created},
		{
			"DenyServiceExternalIPs", "/api/v1/namespaces/default/services?dryRun=All",
			`{"apiVersion": "v1", "kind": "Service", "metadata": {"generateName": "load-"}, "spec": {"externalIPs": ["192.0.2.1"], "ports": [{"port": 80}]}}`,
			answer{http.StatusForbidden, "Use of external IPs is denied"},
			created,
		},
	}
}

// traffic is requests while replicas with two lists of plugins serve. A plugin in both lists must decide about each of its requests, a
// plugin in one list may, and a plugin in no list may not.
type traffic struct {
	*api

	next atomic.Int64

	mu        sync.Mutex
	all, any  []string
	undecided map[string]int
}

// expect says which plugins the replicas run from now on. It begins to count the requests that a plugin in one of the lists does not
// decide about.
func (m *traffic) expect(before, after []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = slices.DeleteFunc(slices.Clone(before), func(plugin string) bool { return !slices.Contains(after, plugin) })
	m.any, m.undecided = slices.Concat(before, after), map[string]int{}
}

// send sends the next request.
func (m *traffic) send(ctx context.Context) (problem string, answered bool) {
	m.mu.Lock()
	all, some, undecided := m.all, m.any, m.undecided
	m.mu.Unlock()
	kinds := requests()
	r := kinds[int(m.next.Add(1))%len(kinds)]
	code, body, err := m.do(ctx, http.MethodPost, r.path, r.body)
	if err != nil {
		return err.Error(), false
	}
	may := slices.Contains(some, r.plugin)
	switch decided := r.decided.is(code, body); {
	case decided && may:
		return "", true
	case !decided && !slices.Contains(all, r.plugin) && r.otherwise.is(code, body):
		if may {
			m.mu.Lock()
			defer m.mu.Unlock()
			undecided[r.plugin]++
		}
		return "", true
	}
	return fmt.Sprintf("%s: %d %s", r.plugin, code, body), true
}

// report logs how many requests passed without a plugin that not all replicas run.
func (m *traffic) report(t *testing.T, phase string) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, plugin := range slices.Sorted(maps.Keys(m.undecided)) {
		t.Logf("%s: %d requests passed without %s", phase, m.undecided[plugin], plugin)
	}
}

// settled waits until exactly these plugins decide, and only their families are registered.
func (c *cluster) settled(t *testing.T, plugins []string) {
	t.Helper()
	names := []string{"mutatingwebhookconfiguration.admissionregistration.k8s.io/postern-pods", "validatingwebhookconfiguration.admissionregistration.k8s.io/postern-pods"}
	if slices.Contains(plugins, "DenyServiceExternalIPs") {
		names = slices.Insert(names, 1, "validatingwebhookconfiguration.admissionregistration.k8s.io/postern-network")
	}
	c.eventually(t, fmt.Sprintf("%q to decide", plugins), func() string {
		for _, r := range requests() {
			want := r.otherwise
			if slices.Contains(plugins, r.plugin) {
				want = r.decided
			}
			code, body, err := c.do(t.Context(), http.MethodPost, r.path, r.body)
			if err != nil || !want.is(code, body) || want == r.otherwise && r.decided.is(code, body) {
				return fmt.Sprintf("%s: %v %d %s", r.plugin, err, code, body)
			}
		}
		if got := c.configurations(t); !slices.Equal(got, names) {
			return fmt.Sprintf("%q are registered, want %q", got, names)
		}
		return ""
	})
}

// TestUpgrade upgrades from another version of Postern to this one and back, with equal plugins and with others, while objects are
// created. POSTERN_FROM is the root of that version's repository.
func TestUpgrade(t *testing.T) {
	from := os.Getenv("POSTERN_FROM")
	if from == "" {
		t.Fatal("Set POSTERN_FROM to the root of another version's repository.")
	}
	c := startCluster(t)
	for _, version := range []struct{ tag, root string }{{"from", from}, {"to", c.root}} {
		c.sh(t, "make -C %s push IMAGE=%s/postern:%s", version.root, c.Registry(), version.tag)
	}
	c.sh(t, "kubectl create namespace selected && kubectl annotate namespace selected scheduler.alpha.kubernetes.io/node-selector=pool=blue")
	first, other := []string{"PodNodeSelector", "SecurityContextDeny"}, []string{"PodNodeSelector", "AlwaysPullImages", "DenyServiceExternalIPs"}
	helm := func(verb, root, tag string, plugins []string) string {
		return fmt.Sprintf("helm %s postern %s/installer/helm/postern --namespace %s --wait --timeout 240s --set image.repository=%s/postern,image.tag=%s,plugins='{%s}'",
			verb, root, namespace, c.Registry(), tag, strings.Join(plugins, ","))
	}
	const change = "upgrade --reset-then-reuse-values"
	rollback := fmt.Sprintf("helm rollback postern --namespace %s --wait --timeout 240s", namespace)
	c.sh(t, "%s", helm("install --create-namespace", from, "from", first))
	c.settled(t, first)
	m := &traffic{api: c.api}
	m.expect(first, first)
	l := startLoad(t, "before the upgrade", m.send)
	defer l.reportAll(t)
	time.Sleep(2 * time.Second)
	now := first
	for _, step := range []struct {
		name, line string
		plugins    []string
	}{
		{"upgrade", helm(change, c.root, "to", first), first},
		{"rollback", rollback, first},
		{"upgrade to other plugins", helm(change, c.root, "to", other), other},
		{"rollback to the first plugins", rollback, first},
		{"other plugins in the other version", helm(change, from, "from", other), other},
		{"upgrade to the first plugins", helm(change, c.root, "to", first), first},
		{"rollback to other plugins", rollback, other},
	} {
		m.expect(now, step.plugins)
		l.enter(step.name)
		c.sh(t, "%s", step.line)
		c.replaced(t)
		start := time.Now()
		c.settled(t, step.plugins)
		t.Logf("%s: the plugins decided %s after the last pod was gone", step.name, time.Since(start).Round(time.Second))
		m.report(t, step.name)
		now = step.plugins
		m.expect(now, now)
		l.enter("after the " + step.name)
		time.Sleep(time.Until(start.Add(mended)))
		before := c.versions(t)
		time.Sleep(quiet)
		if after := c.versions(t); after != before {
			t.Errorf("%s: the configurations were\n%s\nand %s later\n%s", step.name, before, quiet, after)
		}
	}
}

// versions returns the configurations with their resource versions.
func (c *cluster) versions(t *testing.T) string {
	t.Helper()
	return c.sh(t, `kubectl get mutatingwebhookconfigurations,validatingwebhookconfigurations -o jsonpath='{range .items[*]}{.kind}{" "}{.metadata.name}{" "}{.metadata.resourceVersion}{"\n"}{end}'`)
}
