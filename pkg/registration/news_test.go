package registration

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/component-base/metrics"
)

// TestNews checks the Events of a registration, a change, a repair and the removals.
func TestNews(t *testing.T) {
	const both = "mutating postern-pods, validating postern-pods"
	c := newCluster(t, ourNamespace())
	r := newRegistrar(t, c, nil)
	var got []string
	r.Notify = func(eventType, reason, message string) { got = append(got, eventType+" "+reason+": "+message) }
	want := func(step string, want ...string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: got the Events %q, want %q", step, got, want)
		}
		got = nil
	}
	mustSync(t, r, c)
	want("registered", "Normal Registered: Registered webhook configurations: "+both)
	mustSync(t, r, c)
	want("nothing happened")
	r.deployment.Timeout *= 2
	mustSync(t, r, c)
	// The validating half has a time-out of its own.
	want("another time-out", "Normal Changed: Changed webhook configurations: mutating postern-pods")
	mustSync(t, r, c)
	edited := c.registered(t, mutatingKind, "postern-pods").DeepCopy()
	webhookField("Ignore", "failurePolicy")(edited)
	if err := c.Tracker().Update(resources()[mutatingKind], edited, ""); err != nil {
		t.Fatal(err)
	}
	if err := c.Tracker().Delete(resources()[validatingKind], "", "postern-pods"); err != nil {
		t.Fatal(err)
	}
	mustSync(t, r, c)
	want("edited and deleted", "Warning Repaired: Somebody changed or deleted webhook configurations, which were repaired: "+both)
	if err := r.Leave(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	want("the last replica left", "Normal Deregistered: Deregistered webhook configurations: "+both)
}

// TestNewsOfARefusal checks that an uninstall is reported again at each resync while it lasts, but not at each sync, and that
// nothing is reported in a terminating namespace, where no Event can be created.
func TestNewsOfARefusal(t *testing.T) {
	marked, dying := ourNamespace(), ourNamespace()
	marked.SetAnnotations(map[string]string{UninstalledAnnotation: "true"})
	dying.SetAnnotations(map[string]string{UninstalledAnnotation: "true"})
	dying.SetDeletionTimestamp(&metav1.Time{Time: metav1.Now().Time})
	const uninstalled = "Warning Uninstalled: The webhooks are not registered: postern was uninstalled: " +
		"run kubectl annotate namespace postern-system postern.dev/uninstalled- to install it again"
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, ourNamespace())
		r := newRegistrar(t, c, nil)
		registry := metrics.NewKubeRegistry()
		r.metrics = NewMetrics(registry)
		var got []string
		r.Notify = func(eventType, reason, message string) {
			if reason != EventRegistered {
				got = append(got, eventType+" "+reason+": "+message)
			}
		}
		for _, step := range []struct {
			name      string
			after     time.Duration
			namespace *unstructured.Unstructured
			metric    float64
			events    []string
		}{
			{"installed", 0, ourNamespace(), 0, nil},
			{"uninstalled", 0, marked, 1, []string{uninstalled}},
			{"another sync", time.Minute, marked, 1, nil},
			{"a resync", resyncTime, marked, 1, []string{uninstalled}},
			{"undone", time.Second, ourNamespace(), 0, nil},
			{"uninstalled again", time.Second, marked, 1, []string{uninstalled}},
			{"terminating", time.Second, dying, 0, nil},
			{"a resync of the end", resyncTime, dying, 0, nil},
		} {
			got = nil
			time.Sleep(step.after)
			if err := c.Tracker().Update(namespaces, step.namespace, ""); err != nil {
				t.Fatal(err)
			}
			mustSync(t, r, c)
			if !slices.Equal(got, step.events) {
				t.Errorf("%s: got the Events %q, want %q", step.name, got, step.events)
			}
			if got := gauges(t, registry, "postern_uninstalled"); !maps.Equal(got, map[string]float64{"": step.metric}) {
				t.Errorf("%s: got the metric %v, want %v", step.name, got, step.metric)
			}
		}
	})
}

// TestNewsWithoutCanaries checks that the removal of an abandoned canary is not reported.
func TestNewsWithoutCanaries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		canary := other(validatingKind, canaryName)
		canary.SetAnnotations(map[string]string{canaryAnnotation: "true"})
		canary.SetResourceVersion("1")
		c := newCluster(t, ourNamespace(), canary)
		r := newRegistrar(t, c, nil)
		var reasons []string
		r.Notify = func(_, reason, _ string) { reasons = append(reasons, reason) }
		mustSync(t, r, c)
		time.Sleep(abandonedTime)
		mustSync(t, r, c)
		if c.registered(t, validatingKind, canaryName) != nil || !slices.Equal(reasons, []string{EventRegistered}) {
			t.Errorf("Got the Events %v, want the canary removed and only what was registered reported", reasons)
		}
	})
}
