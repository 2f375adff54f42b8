package e2e_test

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/postern-dev/postern/internal/ring"
	"github.com/postern-dev/postern/test/e2e"
)

var update = flag.Bool("update", false, "write the tables of calls into docs/operations.md")

// quiet is the time without webhook calls after which the calls are counted.
const quiet = time.Second

// counts maps a family and a phase, such as "pods mutate", to the number of calls.
type counts map[string]int

// TestCalls counts the calls to Postern for common actions in a cluster, with all plugins enabled. It counts with the
// registered match conditions and without match conditions. docs/operations.md contains the resulting tables.
func TestCalls(t *testing.T) {
	ring.Second(t, "it counts calls while nothing else happens, for a minute and a half")
	t.Parallel()
	c := suite.Lend(t)
	c.AllowPods(t)
	p := startServing(t, c, suite.AllPlugins(t))
	w := newWorld(t, c)
	families := familiesOf(t, c)

	with := w.countAll(t, p, families)
	registered := registeredBy(t, c)
	uninstall(t, c)
	registerWithoutConditions(t, c, registered)
	awaitCalled(t, c)
	without := w.countAll(t, p, families)

	titles := []string{"What is called for as Postern registers itself:\n\n", "\nWhat would be called for without match conditions:\n\n"}
	documented := document(t, titles[0]+table(families, with)+titles[1]+table(families, without))
	_, documented, _ = strings.Cut(documented, titles[0])
	was, wasWithout, found := strings.Cut(documented, titles[1])
	if !found {
		t.Fatalf("The document has other tables. Run the test with -update. It says:\n%s", documented)
	}
	compareTables(t, was, table(families, with), families, func(family string) int {
		// The node controllers emit events at arbitrary times.
		if family == "events" {
			return 1
		}
		return 0
	})
	// The API server renews its own Leases.
	compareTables(t, wasWithout, table(families, without), families, func(string) int { return 2 })
	for _, name := range []string{nodeStatus, leaseRenewal} {
		for call, n := range with[name] {
			t.Errorf("%s: %d calls of %s, want none", name, n, call)
		}
	}
}

// countAll runs all happenings in sequence and counts their calls.
func (w *world) countAll(t *testing.T, p *e2e.Postern, families []string) map[string]counts {
	t.Helper()
	out := map[string]counts{}
	for _, h := range happenings() {
		// Other components send requests now and then. The minimum of two runs excludes these requests.
		out[h.name] = w.count(t, p, families, h).least(w.count(t, p, families, h))
	}
	return out
}

func (w *world) count(t *testing.T, p *e2e.Postern, families []string, h happening) counts {
	t.Helper()
	if h.before != nil {
		h.before(t, w)
	}
	before := settled(t, p, families)
	h.happens(t, w)
	return settled(t, p, families).minus(before)
}

// settled returns the counts when they have not changed for a while.
func settled(t *testing.T, p *e2e.Postern, families []string) counts {
	t.Helper()
	first := calls(t, p, families)
	last, since := first, time.Now()
	e2e.Eventually(t, time.Minute, "there are no more calls", func(context.Context) error {
		if now := calls(t, p, families); fmt.Sprint(now) != fmt.Sprint(last) {
			last, since = now, time.Now()
		}
		if time.Since(since) < quiet {
			return fmt.Errorf("there were %v, the last one %v ago", last.minus(first), time.Since(since))
		}
		return nil
	})
	return last
}

func calls(t *testing.T, p *e2e.Postern, families []string) counts {
	t.Helper()
	out, metrics := counts{}, p.Metrics(t)
	for _, family := range families {
		for _, phase := range []string{"mutate", "validate"} {
			if n := metrics.Sum(t, "postern_webhook_requests_total", `service="/`+family+`"`, `phase="`+phase+`"`); n > 0 {
				out[family+" "+phase] = int(n)
			}
		}
	}
	return out
}

func (c counts) minus(o counts) counts {
	out := counts{}
	for call, n := range c {
		if n > o[call] {
			out[call] = n - o[call]
		}
	}
	return out
}

func (c counts) least(o counts) counts {
	out := counts{}
	for call, n := range c {
		if n = min(n, o[call]); n > 0 {
			out[call] = n
		}
	}
	return out
}

// registeredBy returns all webhook configurations by resource.
func registeredBy(t *testing.T, c *e2e.Cluster) map[string][]unstructured.Unstructured {
	t.Helper()
	out := map[string][]unstructured.Unstructured{}
	for resource, client := range configsOf(t, c).clients {
		list, err := client.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatalf("Listing %s: %v", resource, err)
		}
		out[resource] = list.Items
	}
	return out
}

func familiesOf(t *testing.T, c *e2e.Cluster) []string {
	t.Helper()
	has := map[string]bool{}
	for _, configs := range registeredBy(t, c) {
		for _, config := range configs {
			has[strings.TrimPrefix(config.GetName(), "postern-")] = true
		}
	}
	// The table of plugins in the README has the same order.
	var out []string
	for _, family := range []string{"always", "namespaces", "pods", "nodes", "storage", "certificates", "network", "ownership", "events", "quota", "deletion", "fleetquota"} {
		if has[family] {
			out = append(out, family)
			delete(has, family)
		}
	}
	if len(has) > 0 {
		t.Fatalf("There are families that the test does not know: %v", has)
	}
	return out
}

// registerWithoutConditions registers the same webhooks without match conditions. The API server then calls them for all
// requests that match their rules.
func registerWithoutConditions(t *testing.T, c *e2e.Cluster, registered map[string][]unstructured.Unstructured) {
	t.Helper()
	clients := configsOf(t, c).clients
	for resource, configs := range registered {
		for i := range configs {
			webhooks, _, err := unstructured.NestedSlice(configs[i].Object, "webhooks")
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range webhooks {
				unstructured.RemoveNestedField(w.(map[string]any), "matchConditions")
			}
			copied := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": configs[i].GetAPIVersion(), "kind": configs[i].GetKind(),
				"metadata": map[string]any{"name": configs[i].GetName()}, "webhooks": webhooks,
			}}
			if _, err := clients[resource].Create(t.Context(), copied, metav1.CreateOptions{}); err != nil {
				t.Fatalf("Creating %s without conditions: %v", copied.GetName(), err)
			}
			// Postern has ended when the cluster is cleaned.
			t.Cleanup(func() {
				ctx := context.WithoutCancel(t.Context())
				if err := clients[resource].Delete(ctx, copied.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
					t.Errorf("Deleting %s: %v", copied.GetName(), err)
				}
			})
		}
	}
}
