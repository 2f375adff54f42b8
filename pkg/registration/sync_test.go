package registration

import (
	"encoding/base64"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/metrics"

	"github.com/postern-dev/postern/internal/seed"
	"github.com/postern-dev/postern/pkg/router"
)

func TestSyncRegistersOnce(t *testing.T) {
	c := newCluster(t, ourNamespace())
	r := newRegistrar(t, c, nil)
	mustSync(t, r, c)
	got := c.registered(t, mutatingKind, "postern-pods")
	if got == nil || c.registered(t, validatingKind, "postern-pods") == nil {
		t.Fatalf("Got %v, want both configurations registered", c.applies())
	}
	if owners := got.GetOwnerReferences(); len(owners) != 1 || owners[0].Kind != "Namespace" || owners[0].UID != "ns-uid" {
		t.Errorf("Got the owners %v, want our namespace", owners)
	}
	webhooks, _, _ := unstructured.NestedSlice(got.Object, "webhooks")
	client := webhooks[0].(map[string]any)["clientConfig"].(map[string]any)
	if want := base64.StdEncoding.EncodeToString(cert("ca")); client["caBundle"] != want {
		t.Errorf("Got the bundle %v, want %v", client["caBundle"], want)
	}
	mustSync(t, r, c)
	if n := len(c.applies()); n != 2 {
		t.Errorf("Applied %d times, want each of two once: %v", n, c.applies())
	}
}

// TestSyncWithALateCache checks that a configuration that the cache does not have yet is not registered again, which
// would be logged as a repair.
func TestSyncWithALateCache(t *testing.T) {
	c := newCluster(t, ourNamespace())
	r := newRegistrar(t, c, nil)
	late := c.stores(t, r)
	for range 2 {
		if _, err := r.sync(t.Context(), late); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(c.applies()); n != 2 {
		t.Errorf("Applied %d times, want each of two once: %v", n, c.applies())
	}
}

func TestSyncRepairsWhatIsOurs(t *testing.T) {
	for name, edit := range map[string]struct {
		do     func(*unstructured.Unstructured)
		repair bool
	}{
		"a rule":       {webhookField([]any{}, "rules"), true},
		"the policy":   {webhookField("Ignore", "failurePolicy"), true},
		"the CA":       {webhookField("", "clientConfig", "caBundle"), true},
		"the service":  {webhookField("x", "clientConfig", "service", "name"), true},
		"the label":    {func(u *unstructured.Unstructured) { u.SetLabels(nil) }, true},
		"the owner":    {func(u *unstructured.Unstructured) { u.SetOwnerReferences(nil) }, true},
		"a condition":  {webhookField([]any{}, "matchConditions"), true},
		"the matching": {webhookField("Exact", "matchPolicy"), true},
		"its scope": {webhookField([]any{map[string]any{
			"apiGroups": []any{""}, "apiVersions": []any{"v1"}, "resources": []any{"pods"}, "operations": []any{"CREATE"}, "scope": "Cluster",
		}}, "rules"), true},
		"a condition more":        {conditions("exclude-apiserver", "exclude-namespaces", "own", "never"), true},
		"a condition for another": {conditions("exclude-apiserver", "exclude-namespaces", "never"), true},
		"another order":           {conditions("own", "exclude-namespaces", "exclude-apiserver"), true},
		"all of it":               {func(u *unstructured.Unstructured) { delete(u.Object, "webhooks") }, true},
		"a selector":              {webhookField(map[string]any{"matchLabels": map[string]any{"a": "b"}}, "namespaceSelector"), false},
		"an annotation":           {func(u *unstructured.Unstructured) { u.SetAnnotations(withKey(u.GetAnnotations())) }, false},
		"another label":           {func(u *unstructured.Unstructured) { u.SetLabels(withKey(u.GetLabels())) }, false},
		"a larger CA":             {webhookField(base64.StdEncoding.EncodeToString(cert("new", "ca")), "clientConfig", "caBundle"), false},
		"no bundle":               {webhookField("bm8gUEVN", "clientConfig", "caBundle"), true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, ourNamespace())
			r := newRegistrar(t, c, nil)
			mustSync(t, r, c)
			before := c.registered(t, mutatingKind, "postern-pods").DeepCopy()
			c.editOne(t, mutatingKind, edit.do)
			c.ClearActions()
			mustSync(t, r, c)
			if got := len(patches(c)); (got > 0) != edit.repair || got > 2 {
				t.Errorf("Wrote %d times, want a repair: %v", got, edit.repair)
			}
			got := c.registered(t, mutatingKind, "postern-pods")
			if edit.repair && (!covers(got.Object, before.Object) || !reflect.DeepEqual(got.Object["webhooks"], before.Object["webhooks"])) {
				t.Errorf("Got %v, want it repaired", got)
			}
		})
	}
}

// patches returns the writes to configurations, apart from deletions.
func patches(c *cluster) []clienttesting.Action {
	return slices.DeleteFunc(slices.Clone(c.Actions()), func(a clienttesting.Action) bool { return a.GetVerb() != "patch" })
}

// conditions replaces the match conditions by some with these names. Those of Postern keep their expressions.
func conditions(names ...string) func(*unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) {
		before, _ := asMap(webhookList(u.Object)[0])["matchConditions"].([]any)
		var list []any
		for _, name := range names {
			if c, ours := named(before)[name]; ours {
				list = append(list, runtime.DeepCopyJSONValue(c))
			} else {
				list = append(list, map[string]any{"name": name, "expression": "false"})
			}
		}
		webhookField(list, "matchConditions")(u)
	}
}

func withKey(m map[string]string) map[string]string {
	out := map[string]string{"somebody": "else"}
	maps.Copy(out, m)
	return out
}

func webhookField(value any, path ...string) func(*unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) {
		webhooks, _, _ := unstructured.NestedSlice(u.Object, "webhooks")
		_ = unstructured.SetNestedField(webhooks[0].(map[string]any), value, path...)
		_ = unstructured.SetNestedSlice(u.Object, webhooks, "webhooks")
	}
}

func TestEqualReplicasWriteOnce(t *testing.T) {
	c := newCluster(t, ourNamespace())
	first, second := newRegistrar(t, c, nil), newRegistrar(t, c, nil)
	mustSync(t, first, c)
	mustSync(t, second, c)
	mustSync(t, first, c)
	if n := len(c.applies()); n != 2 {
		t.Errorf("Applied %d times, want once for each configuration: %v", n, c.applies())
	}
}

func TestReplicaOfALowerRankNeverWrites(t *testing.T) {
	c := newCluster(t, ourNamespace())
	lower := newRegistrar(t, c, nil)
	higher := newRegistrar(t, c, func(d *Deployment, _ *router.AdmissionService) { d.Timeout = 3 * time.Second })
	mustSync(t, lower, c)
	mustSync(t, lower, c)
	mustSync(t, higher, c)
	before := c.registered(t, mutatingKind, "postern-pods")
	for range 3 {
		mustSync(t, lower, c)
	}
	if err := c.Tracker().Delete(resources()[mutatingKind], "", "postern-pods"); err != nil {
		t.Fatal(err)
	}
	mustSync(t, lower, c)
	if n := len(c.applies()); n != 4 || c.registered(t, mutatingKind, "postern-pods") != nil {
		t.Errorf("Applied %d times, want two of each replica: %v", n, c.applies())
	}
	mustSync(t, higher, c)
	if got := c.registered(t, mutatingKind, "postern-pods"); !covers(got.Object, before.Object) {
		t.Errorf("Got %v, want it repaired by the higher rank", got)
	}
	// It registers if it starts again.
	mustSync(t, newRegistrar(t, c, nil), c)
	webhooks, _, _ := unstructured.NestedSlice(c.registered(t, mutatingKind, "postern-pods").Object, "webhooks")
	if got := asMap(webhooks[0])["timeoutSeconds"]; got != int64(1) {
		t.Errorf("Got the time-out %v, want that of the replica that is left", got)
	}
}

// TestServiceWaitsForOtherVersions is a rollout that adds a family which the program of the old replicas may lack.
func TestServiceWaitsForOtherVersions(t *testing.T) {
	c := newCluster(t, ourNamespace())
	r := newRegistrar(t, c, nil)
	registry := measure(r)
	r.know(mixed)
	mustSync(t, r, c)
	if got := c.applies(); len(got) != 0 {
		t.Fatalf("Applied %v while a replica may answer with 404", got)
	}
	if err := r.Status(); err == nil || err.Error() != "MutatingWebhookConfiguration postern-pods is not added while replicas of another version may run" {
		t.Errorf("Got the status %v, want the configuration that waits", err)
	}
	if got := registeredMetrics(t, registry); !maps.Equal(got, map[string]float64{mutatingKind: 0, validatingKind: 0}) {
		t.Errorf("Got the metrics %v, want 0", got)
	}
	r.know(alone)
	mustSync(t, r, c)
	if got := c.applies(); len(got) != 2 || r.Status() != nil {
		t.Errorf("Applied %v with the status %v, want both configurations once only this version runs", got, r.Status())
	}
	// The next rollout. What is registered stays, and is repaired.
	mustSync(t, r, c)
	r.know(mixed)
	mustSync(t, r, c)
	c.editOne(t, validatingKind, webhookField([]any{}, "rules"))
	mustSync(t, r, c)
	if got := c.applies(); len(got) != 3 || len(deletions(c)) > 0 || r.Status() != nil {
		t.Errorf("Applied %v and deleted %v with the status %v, want one repair", got, deletions(c), r.Status())
	}
	// Without its label the configuration is not in the cache.
	c.editOne(t, validatingKind, func(u *unstructured.Unstructured) { u.SetLabels(nil) })
	mustSync(t, r, c)
	if got := c.applies(); len(got) != 4 || r.Status() != nil {
		t.Errorf("Applied %v with the status %v, want the label repaired", got, r.Status())
	}
	c.deleteAll(t)
	mustSync(t, r, c)
	if got := c.applies(); len(got) != 6 || r.Status() != nil {
		t.Errorf("Applied %v with the status %v, want what somebody deleted", got, r.Status())
	}
}

// TestValidatingHalfWaits has the API server refuse the mutating half, without which the validating half denies good objects.
func TestValidatingHalfWaits(t *testing.T) {
	c := newCluster(t, ourNamespace())
	r := newRegistrar(t, c, nil)
	fails := true
	c.PrependReactor("patch", "mutatingwebhookconfigurations", func(clienttesting.Action) (bool, runtime.Object, error) {
		return fails, nil, errors.New("away")
	})
	for i := range maxTries {
		if r.attempt(t.Context(), c.stores(t, r)) == 0 || c.registered(t, validatingKind, "postern-pods") != nil {
			t.Fatalf("At attempt %d: the validating half is registered alone, or no attempt follows", i)
		}
	}
	if r.attempt(t.Context(), c.stores(t, r)) == 0 || c.registered(t, validatingKind, "postern-pods") == nil {
		t.Error("The validating half is not registered though the other half keeps failing")
	}
	if fails = false; r.attempt(t.Context(), c.stores(t, r)) != 0 || r.Status() != nil {
		t.Errorf("Got the status %v, want both halves", r.Status())
	}
	// What is its own is repaired nevertheless.
	fails = true
	c.edit(t, webhookField([]any{}, "rules"))
	if r.attempt(t.Context(), c.stores(t, r)) == 0 || len(asMap(webhookList(c.registered(t, validatingKind, "postern-pods").Object)[0])["rules"].([]any)) == 0 {
		t.Error("The validating half is not repaired")
	}
	fails = false
	if r.attempt(t.Context(), c.stores(t, r)); !c.isRegistered(t, r) || r.Status() != nil {
		t.Errorf("Got the status %v, want both halves", r.Status())
	}
}

// TestValidatingHalfDoesNotWaitLong has the mutating half fail once, and then wait itself.
func TestValidatingHalfDoesNotWaitLong(t *testing.T) {
	c := newCluster(t, ourNamespace())
	c.deploy(t, "postern", 2)
	mustSync(t, memberOf(t, c, "postern", 1, slower), c)
	r := memberOf(t, c, "postern", 2, nil)
	r.know(mixed)
	fails := true
	c.PrependReactor("patch", "mutatingwebhookconfigurations", func(clienttesting.Action) (bool, runtime.Object, error) {
		return fails, nil, errors.New("away")
	})
	if r.attempt(t.Context(), c.stores(t, r)) == 0 || r.failed[r.services[0].Path] == 0 {
		t.Fatal("No failure is counted")
	}
	fails = false
	c.removeAs(t, mutatingKind, claim{"postern", "postern-uid", 1, "e"}, r)
	mustSync(t, r, c)
	if got := registeredBy(t, c); !maps.Equal(got, map[string]claim{validatingKind: r.fleet.claim()}) || r.Status() == nil {
		t.Errorf("Registered by %v with the status %v, want a validating half that does not wait for the other, which must", got, r.Status())
	}
}

// TestRemovedServiceStaysAway is a rollout that removes a family. The replica that starts removes first one half and then the other.
func TestRemovedServiceStaysAway(t *testing.T) {
	c := newCluster(t, ourNamespace())
	c.deploy(t, "postern", 2)
	old := memberOf(t, c, "postern", 1, nil)
	old.know(mixed)
	remember(old)
	settle(t, c, old)
	next := memberOf(t, c, "postern", 2, nil)
	next.services = nil
	next.know(mixed)
	fails := true
	c.PrependReactor("patch", "mutatingwebhookconfigurations", func(clienttesting.Action) (bool, runtime.Object, error) {
		return fails, nil, errors.New("away")
	})
	if err := next.Prepare(t.Context()); err == nil {
		t.Fatal("Got no error of the removal")
	}
	c.tell(old)
	settle(t, c, old)
	if fails = false; c.registered(t, validatingKind, "postern-pods") != nil {
		t.Error("The half that was removed first is there again")
	}
	if err := next.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := len(c.applies())
	c.tell(old)
	settle(t, c, old, next)
	if got := c.applies()[before:]; len(got) > 0 || len(registeredBy(t, c)) > 0 {
		t.Errorf("Applied %v, want the removed service to stay away", got)
	}
	if err := old.Status(); err == nil || !strings.Contains(err.Error(), "is not added while replicas of another version may run") {
		t.Errorf("Got the status %v, want the service that waits", err)
	}
	old.know(alone) // The later revision was a failure.
	settle(t, c, old)
	if !isRegistrationOf(t, c, old) || old.Status() != nil {
		t.Errorf("Registered by %v with the status %v, want what was removed", registeredBy(t, c), old.Status())
	}
}

// remember makes a replica one that has seen its configurations registered.
func remember(r *Registrar) {
	for _, key := range r.keys() {
		r.had.note(key, wasRegistered)
	}
}

// TestRemovalIsNoticedAtOnce has a later revision remove a service while an old replica syncs, and before that has seen its pod.
func TestRemovalIsNoticedAtOnce(t *testing.T) {
	c := newCluster(t, ourNamespace())
	c.deploy(t, "postern", 2)
	old := memberOf(t, c, "postern", 1, nil)
	old.know(alone)
	settle(t, c, old)
	stores := c.stores(t, old)
	next := memberOf(t, c, "postern", 2, nil)
	next.services = nil
	c.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		for _, u := range configurations(stores) {
			_ = stores[u.GetKind()].Delete(u)
		}
		return false, nil, nil
	})
	c.PrependReactor("get", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetResource().Resource == "mutatingwebhookconfigurations" {
			c.tell(old) // The sync asks the API server, because the cache lacks it.
		}
		return false, nil, nil
	})
	if err := next.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := len(c.applies())
	if _, err := old.sync(t.Context(), stores); err != nil {
		t.Fatal(err)
	}
	c.tell(old)
	settle(t, c, old)
	if got := c.applies()[before:]; len(got) > 0 {
		t.Errorf("Applied %v, want the removed service to stay away", got)
	}
}

// TestAWaitIsRepeated checks that a replica that waits looks again soon: Mixed may change by time alone.
func TestAWaitIsRepeated(t *testing.T) {
	c := newCluster(t, ourNamespace())
	r := memberOf(t, c, "postern", 1, nil)
	r.know(mixed)
	if again, err := r.sync(t.Context(), c.stores(t, r)); err != nil || again != lookInterval {
		t.Errorf("Syncs again after %v (%v), want %v", again, err, lookInterval)
	}
}

// TestServiceRemovedByAPeer has a replica of the same revision remove a service that its configuration lacks, before it registers.
func TestServiceRemovedByAPeer(t *testing.T) {
	c := newCluster(t, ourNamespace())
	c.deploy(t, "postern", 1)
	old := memberOf(t, c, "postern", 1, func(_ *Deployment, s *router.AdmissionService) { s.Path = "/removed" })
	old.know(alone)
	settle(t, c, old)
	next := memberOf(t, c, "postern", 1, nil)
	if err := next.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.tell(old)
	settle(t, c, old)
	if got := registeredBy(t, c); len(got) > 0 {
		t.Errorf("Registered by %v before the later replica registers", got)
	}
	settle(t, c, next, old)
	if !isRegistrationOf(t, c, next) || old.Status() != nil {
		t.Errorf("Registered by %v, want the later replica", registeredBy(t, c))
	}
}

// TestServiceRemovedByAProcess has a process that removes a service and registers nothing. Whether it still runs is not known.
func TestServiceRemovedByAProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, ourNamespace())
		old := newRegistrar(t, c, nil)
		settle(t, c, old)
		later := memberOf(t, c, "", 0, slower)
		later.services = nil
		if err := later.Prepare(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.tell(old)
		settle(t, c, old, later)
		time.Sleep(removalTime + time.Second)
		settle(t, c, old, later)
		if err := old.Status(); err == nil || !strings.HasSuffix(err.Error(), "has removed it: it is added after a minute if this one has registered others, or when this one starts again") || len(registeredBy(t, c)) > 0 {
			t.Errorf("Registered by %v with the status %v, want the removed service to stay away", registeredBy(t, c), err)
		}
		again := newRegistrar(t, c, nil)
		settle(t, c, again)
		if !isRegistrationOf(t, c, again) {
			t.Errorf("Registered by %v, want the one that started last", registeredBy(t, c))
		}
	})
}

// TestProcessThatDeregisters has a process that registers, and removes that at its end. The other one registers again.
func TestProcessThatDeregisters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, ourNamespace())
		first, later := newRegistrar(t, c, nil), newRegistrar(t, c, slower)
		settle(t, c, first)
		settle(t, c, later, first)
		if err := later.Leave(t.Context(), true); err != nil || len(registeredBy(t, c)) > 0 {
			t.Fatalf("Registered by %v (%v), want nothing", registeredBy(t, c), err)
		}
		c.tell(first)
		settle(t, c, first)
		time.Sleep(goneTime)
		settle(t, c, first)
		if !isRegistrationOf(t, c, first) || first.Status() != nil {
			t.Errorf("Registered by %v with the status %v, want the one that is left", registeredBy(t, c), first.Status())
		}
	})
}

// TestNothingThatIsSeenRemovesAService syncs with random views of the pods, which somebody may have made up.
func TestNothingThatIsSeenRemovesAService(t *testing.T) {
	c := newCluster(t, ourNamespace())
	r := newRegistrar(t, c, nil)
	mustSync(t, r, c)
	chance := seed.Chance(t)
	for range 10_000 {
		r.know(func(f *Fleet) {
			f.workload, f.looked, f.other, f.running = labels.Everything(), time.Now(), time.Time{}, chance.IntN(2) == 0
			if chance.IntN(2) == 0 {
				f.other = time.Now()
			}
			if chance.IntN(2) == 0 {
				f.looked = time.Time{}
			}
		})
		mustSync(t, r, c)
	}
	if got := deletions(c); len(got) > 0 || len(c.applies()) != 2 {
		t.Errorf("Deleted %.10q and applied %d times, want what was registered first", got, len(c.applies()))
	}
}

// measure gives a registrar metrics of its own.
func measure(r *Registrar) metrics.KubeRegistry {
	registry := metrics.NewKubeRegistry()
	r.metrics = NewMetrics(registry)
	return registry
}

func registeredMetrics(t *testing.T, registry metrics.KubeRegistry) map[string]float64 {
	t.Helper()
	return gauges(t, registry, "postern_webhook_registered")
}

// gauges returns the values of a gauge by the kind of the configuration, which is empty if the gauge has no labels.
func gauges(t *testing.T, registry metrics.KubeRegistry, name string) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() != name {
				continue
			}
			if len(m.GetLabel()) == 0 {
				out[""] = m.GetGauge().GetValue()
			}
			for _, l := range m.GetLabel() {
				if l.GetName() == "type" {
					out[l.GetValue()] = m.GetGauge().GetValue()
				}
			}
		}
	}
	return out
}

// TestYieldingReplicaRaisesNoAlarm checks the metric of a replica that leaves the registration to another.
func TestYieldingReplicaRaisesNoAlarm(t *testing.T) {
	c := newCluster(t, ourNamespace())
	higher := newRegistrar(t, c, func(_ *Deployment, s *router.AdmissionService) { s.Mutate, s.MutatingConfig = nil, nil })
	mustSync(t, higher, c)
	r := newRegistrar(t, c, nil)
	registry := measure(r)
	r.markUnregistered()
	r.fence.turned = true
	mustSync(t, r, c)
	if got := registeredMetrics(t, registry); !maps.Equal(got, map[string]float64{validatingKind: 1}) || r.Status() != nil {
		t.Errorf("Got the metrics %v and the status %v, want 1 for the configuration that the other has registered, and nothing for that which it has not", got, r.Status())
	}
}

func TestForeignObjectsAreLeftAlone(t *testing.T) {
	theirs := other(mutatingKind, "postern-theirs")
	theirs.SetLabels(map[string]string{ManagedByLabel: ManagedBy})
	elsewhere := other(validatingKind, "postern-elsewhere")
	elsewhere.SetLabels(map[string]string{ManagedByLabel: ManagedBy, NamespaceLabel: "elsewhere"})
	taken := other(mutatingKind, "postern-pods")
	taken.SetLabels(map[string]string{ManagedByLabel: "somebody"})
	c := newCluster(t, ourNamespace(), theirs, elsewhere, taken)
	r := newRegistrar(t, c, nil)
	if err := r.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := r.sync(t.Context(), c.stores(t, r))
	if want := "MutatingWebhookConfiguration postern-pods exists and does not belong to the Postern in namespace postern-system: delete or rename it"; err == nil || err.Error() != want {
		t.Errorf("Got the error %v, want %q", err, want)
	}
	if _, err := Uninstall(t.Context(), c, r.deployment, ""); err != nil {
		t.Fatal(err)
	}
	for _, u := range []*unstructured.Unstructured{theirs, elsewhere, taken} {
		if got := c.registered(t, u.GetKind(), u.GetName()); got == nil || !covers(got.Object, u.Object) || !covers(u.Object, got.Object) {
			t.Errorf("Got %v, want %v left alone", got, u)
		}
	}
}

func TestTwoInstallations(t *testing.T) {
	second := ourNamespace()
	second.SetName("second")
	c := newCluster(t, ourNamespace(), second)
	one, two := newRegistrar(t, c, nil), newRegistrar(t, c, func(d *Deployment, _ *router.AdmissionService) { d.Namespace = "second" })
	mustSync(t, one, c)
	mustSync(t, two, c)
	mustSync(t, one, c)
	for _, name := range []string{"postern-pods", "postern-pods-second"} {
		if c.registered(t, mutatingKind, name) == nil || c.registered(t, validatingKind, name) == nil {
			t.Errorf("%s is not registered", name)
		}
	}
	if n := len(c.applies()); n != 4 {
		t.Errorf("Applied %v, want each of four once", c.applies())
	}
	if _, err := Uninstall(t.Context(), c, two.deployment, ""); err != nil || c.registered(t, mutatingKind, "postern-pods-second") != nil || c.registered(t, mutatingKind, "postern-pods") == nil {
		t.Errorf("Uninstalling the second: %v, want its configurations gone and those of the first there", err)
	}
}

// TestRepairsAreBounded is somebody who keeps changing a configuration.
func TestRepairsAreBounded(t *testing.T) {
	c := newCluster(t, ourNamespace())
	r := newRegistrar(t, c, nil)
	mustSync(t, r, c)
	for i := range 3 * repairBurst {
		edited := c.registered(t, mutatingKind, "postern-pods").DeepCopy()
		webhookField("Ignore", "failurePolicy")(edited)
		if err := c.Tracker().Update(resources()[mutatingKind], edited, ""); err != nil {
			t.Fatal(err)
		}
		again, err := r.sync(t.Context(), c.stores(t, r))
		if err != nil {
			t.Fatal(err)
		}
		if limited := again > 0; limited && i < repairBurst || !limited && i > 2*repairBurst {
			t.Fatalf("Got the repair %d put off: %v", i, limited)
		}
	}
	if got := len(c.applies()) - 2; got < repairBurst || got > repairBurst+2 {
		t.Errorf("Repaired %d times, want %d", got, repairBurst)
	}
}

func TestSyncTellsWhatFailed(t *testing.T) {
	c := newCluster(t, ourNamespace())
	c.PrependReactor("patch", "validatingwebhookconfigurations", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("no room")
	})
	r := newRegistrar(t, c, nil)
	_, err := r.sync(t.Context(), c.stores(t, r))
	if err == nil || !strings.Contains(err.Error(), "applying ValidatingWebhookConfiguration postern-pods: no room") {
		t.Errorf("Got the error %v, want an error that names the configuration", err)
	}
	if c.registered(t, mutatingKind, "postern-pods") == nil {
		t.Error("One failure kept the other configuration from being registered")
	}
}
