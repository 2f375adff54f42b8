package router

import (
	"encoding/base64"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
)

func TestSyncRegistersOnce(t *testing.T) {
	c := newCluster(t, ourNamespace())
	r := newRegistrar(t, c, "10:00", nil)
	mustSync(t, r, c)
	got := c.registered(t, mutatingKind, "postern-pods")
	if got == nil || c.registered(t, validatingKind, "postern-pods") == nil {
		t.Fatalf("Got %v, want both configurations registered", c.applies())
	}
	if owners := got.GetOwnerReferences(); len(owners) != 1 || owners[0].Kind != "Namespace" || owners[0].UID != "ns-uid" {
		t.Errorf("Got the owners %v, want our namespace", owners)
	}
	if g := generationOf(got); g != r.generation {
		t.Errorf("Got the generation %v, want %v", g, r.generation)
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

func TestSyncRepairsWhatIsOurs(t *testing.T) {
	for name, edit := range map[string]struct {
		do     func(*unstructured.Unstructured)
		repair bool
	}{
		"a rule":        {webhookField([]any{}, "rules"), true},
		"the policy":    {webhookField("Ignore", "failurePolicy"), true},
		"the CA":        {webhookField("", "clientConfig", "caBundle"), true},
		"the service":   {webhookField("x", "clientConfig", "service", "name"), true},
		"the label":     {func(u *unstructured.Unstructured) { u.SetLabels(nil) }, true},
		"the owner":     {func(u *unstructured.Unstructured) { u.SetOwnerReferences(nil) }, true},
		"a condition":   {webhookField([]any{}, "matchConditions"), true},
		"all of it":     {func(u *unstructured.Unstructured) { delete(u.Object, "webhooks") }, true},
		"a selector":    {webhookField(map[string]any{"matchLabels": map[string]any{"a": "b"}}, "namespaceSelector"), false},
		"an annotation": {func(u *unstructured.Unstructured) { u.SetAnnotations(withKey(u.GetAnnotations())) }, false},
		"another label": {func(u *unstructured.Unstructured) { u.SetLabels(withKey(u.GetLabels())) }, false},
		"a larger CA":   {webhookField(base64.StdEncoding.EncodeToString(cert("new", "ca")), "clientConfig", "caBundle"), false},
		"no bundle":     {webhookField("bm8gUEVN", "clientConfig", "caBundle"), true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, ourNamespace())
			r := newRegistrar(t, c, "10:00", nil)
			mustSync(t, r, c)
			before := c.registered(t, mutatingKind, "postern-pods")
			edited := before.DeepCopy()
			edit.do(edited)
			if err := c.Tracker().Update(resources()[mutatingKind], edited, ""); err != nil {
				t.Fatal(err)
			}
			mustSync(t, r, c)
			if got := len(c.applies()) - 2; (got == 1) != edit.repair || got > 1 {
				t.Errorf("Applied %d times, want a repair: %v", got, edit.repair)
			}
			if !covers(c.registered(t, mutatingKind, "postern-pods").Object, before.Object) && edit.repair {
				t.Errorf("Got %v, want it repaired", c.registered(t, mutatingKind, "postern-pods"))
			}
		})
	}
}

func withKey(m map[string]string) map[string]string {
	m = maps.Clone(m)
	m["somebody"] = "else"
	return m
}

func webhookField(value any, path ...string) func(*unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) {
		webhooks, _, _ := unstructured.NestedSlice(u.Object, "webhooks")
		_ = unstructured.SetNestedField(webhooks[0].(map[string]any), value, path...)
		_ = unstructured.SetNestedSlice(u.Object, webhooks, "webhooks")
	}
}

func TestReplicasKeepOneGeneration(t *testing.T) {
	c := newCluster(t, ourNamespace())
	first, second := newRegistrar(t, c, "10:00", nil), newRegistrar(t, c, "11:00", nil)
	mustSync(t, first, c)
	mustSync(t, second, c)
	mustSync(t, first, c)
	if n := len(c.applies()); n != 2 {
		t.Errorf("Applied %d times, want once for each configuration: %v", n, c.applies())
	}
	if got := generationOf(c.registered(t, mutatingKind, "postern-pods")); got != first.generation {
		t.Errorf("Got the generation %v, want %v, the one that was first", got, first.generation)
	}
}

func TestOlderPosternYields(t *testing.T) {
	c := newCluster(t, ourNamespace())
	older := newRegistrar(t, c, "10:00", nil)
	newer := newRegistrar(t, c, "11:00", func(d *Deployment, _ *AdmissionService) { d.Timeout = 3 * time.Second })
	mustSync(t, newer, c)
	older.notice(klog.Background(), generationOf(c.registered(t, mutatingKind, "postern-pods")))
	mustSync(t, older, c)
	if got := generationOf(c.registered(t, mutatingKind, "postern-pods")); got != newer.generation {
		t.Errorf("Got the generation %v, want %v", got, newer.generation)
	}
	newer.notice(klog.Background(), older.generation)
	mustSync(t, newer, c)
	if n := len(c.applies()); n != 2 {
		t.Errorf("Applied %d times, want only the newer one's two: %v", n, c.applies())
	}
	// It takes over once nobody has insisted for a while, as after a rollback.
	older.forgive()
	mustSync(t, older, c)
	if got := generationOf(c.registered(t, mutatingKind, "postern-pods")); got != older.generation {
		t.Errorf("Got the generation %v after a while, want %v", got, older.generation)
	}
}

func TestSyncTellsWhatFailed(t *testing.T) {
	c := newCluster(t, ourNamespace())
	c.PrependReactor("patch", "validatingwebhookconfigurations", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("no room")
	})
	r := newRegistrar(t, c, "10:00", nil)
	err := r.sync(t.Context(), c.stores(t))
	if err == nil || !strings.Contains(err.Error(), "applying ValidatingWebhookConfiguration postern-pods: no room") {
		t.Errorf("Got the error %v, want what could not be applied", err)
	}
	if c.registered(t, mutatingKind, "postern-pods") == nil {
		t.Error("One failure kept the other configuration from being registered")
	}
}
