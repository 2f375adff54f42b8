package registration

import (
	"context"
	"encoding/base64"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/postern-dev/postern/pkg/router"
)

// run runs a registrar until the test ends.
func run(t *testing.T, r *Registrar, probe func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx, probe) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Running: %v", err)
		}
	})
}

func reachable(context.Context) error { return nil }

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("It did not come to this: %s", what)
		}
	}
}

// quiet waits until no configuration has been applied for a while.
func quiet(t *testing.T, c *cluster) {
	t.Helper()
	last, since := len(c.applies()), time.Now()
	eventually(t, "nobody applies anything any more", func() bool {
		if n := len(c.applies()); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > 3*settleTime
	})
}

func (c *cluster) isRegistered(t *testing.T, r *Registrar) bool {
	t.Helper()
	u := c.registered(t, mutatingKind, "postern-pods")
	w := mustDesire(t, r)[configKey{mutatingKind, "postern-pods"}]
	w.SetOwnerReferences(nil)
	return u != nil && covers(u.Object, w.Object) && c.registered(t, validatingKind, "postern-pods") != nil
}

func bundleOf(u *unstructured.Unstructured) any {
	if u == nil {
		return nil
	}
	webhooks, _, _ := unstructured.NestedSlice(u.Object, "webhooks")
	bundle, _, _ := unstructured.NestedString(asMap(webhooks[0]), "clientConfig", "caBundle")
	return bundle
}

func TestRunRegistersWhenReachable(t *testing.T) {
	c := newCluster(t, ourNamespace())
	r := newRegistrar(t, c, nil)
	r.reached = false
	registry := measure(r)
	r.markUnregistered() // As NewRegistrar does.
	registered := func() (out []float64) {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == "postern_webhook_registered" {
					out = append(out, m.GetGauge().GetValue())
				}
			}
		}
		return out
	}
	var up atomic.Bool
	var probes atomic.Int32
	run(t, r, func(context.Context) error {
		if probes.Add(1); up.Load() {
			return nil
		}
		return errors.New("nobody there")
	})
	eventually(t, "several probes", func() bool { return probes.Load() >= 3 })
	if got := registered(); len(c.applies()) != 0 || len(got) != 2 || got[0]+got[1] != 0 {
		t.Fatalf("Applied %v with the metrics %v before anybody could be reached", c.applies(), got)
	}
	up.Store(true)
	eventually(t, "both are registered", func() bool { return c.isRegistered(t, r) })
	eventually(t, "the metrics say so", func() bool { got := registered(); return len(got) == 2 && got[0]+got[1] == 2 })
}

// trimsSoon removes a registered CA that is in no replica's bundle after one second.
func trimsSoon(d *Deployment, _ *router.AdmissionService) { d.KeepCAs = time.Second }

func TestRunRestores(t *testing.T) {
	c := newCluster(t, ourNamespace())
	r := newRegistrar(t, c, trimsSoon)
	run(t, r, reachable)
	eventually(t, "both are registered", func() bool { return c.isRegistered(t, r) })
	if err := c.Tracker().Delete(resources()[mutatingKind], "", "postern-pods"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the deleted configuration is restored", func() bool { return c.isRegistered(t, r) })
	edited := c.registered(t, validatingKind, "postern-pods").DeepCopy()
	webhookField("Fail", "failurePolicy")(edited)
	if err := c.Tracker().Update(resources()[validatingKind], edited, ""); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the edited configuration is restored", func() bool {
		webhooks, _, _ := unstructured.NestedSlice(c.registered(t, validatingKind, "postern-pods").Object, "webhooks")
		return asMap(webhooks[0])["failurePolicy"] == "Ignore"
	})
	for _, cas := range [][]string{{"next", "ca"}, {"next"}} {
		r.bundle.(*bundle).replace(cas...)
		eventually(t, "the new bundle is registered", func() bool {
			return bundleOf(c.registered(t, mutatingKind, "postern-pods")) == base64.StdEncoding.EncodeToString(cert(cas...))
		})
	}
	quiet(t, c)
}

// hastyBundle is replaced immediately after its first read.
type hastyBundle struct {
	*bundle

	reads atomic.Int32
}

func (h *hastyBundle) Bundle() []byte {
	data := h.bundle.Bundle()
	if h.reads.Add(1) == 1 {
		h.replace("next")
	}
	return data
}

// TestRunMissesNoBundle starts with a correct registration, so that no event of a configuration triggers a sync.
func TestRunMissesNoBundle(t *testing.T) {
	c := newCluster(t, ourNamespace())
	mustSync(t, newRegistrar(t, c, nil), c)
	r := newRegistrar(t, c, trimsSoon)
	r.bundle = &hastyBundle{bundle: newBundle("ca")}
	run(t, r, reachable)
	eventually(t, "the new bundle is registered", func() bool {
		return bundleOf(c.registered(t, mutatingKind, "postern-pods")) == base64.StdEncoding.EncodeToString(cert("next"))
	})
}

// TestRunsSideBySide lets two replicas find out who registers.
func TestRunsSideBySide(t *testing.T) {
	for name, change := range map[string]func(*Deployment, *router.AdmissionService){
		"the same": nil,
		"another":  func(d *Deployment, _ *router.AdmissionService) { d.Timeout = 3 * time.Second },
	} {
		t.Run(name, func(t *testing.T) {
			cluster := newCluster(t, ourNamespace())
			first, second := newRegistrar(t, cluster, nil), newRegistrar(t, cluster, change)
			for _, r := range []*Registrar{first, second} {
				if err := r.Prepare(t.Context()); err != nil {
					t.Fatal(err)
				}
				run(t, r, reachable)
				eventually(t, "it is registered", func() bool { return cluster.isRegistered(t, r) })
				quiet(t, cluster)
			}
			eventually(t, "the second has registered", func() bool { return cluster.isRegistered(t, second) })
			quiet(t, cluster)
			if n := len(cluster.applies()); n > 8 {
				t.Errorf("Applied %d times, want no fight", n)
			}
			if !cluster.isRegistered(t, second) {
				t.Error("The replica that came later did not prevail")
			}
		})
	}
}

func TestRunAfterUninstall(t *testing.T) {
	c := newCluster(t, ourNamespace())
	r := newRegistrar(t, c, nil)
	run(t, r, reachable)
	eventually(t, "both are registered", func() bool { return c.isRegistered(t, r) })
	quiet(t, c)
	before := len(c.applies())
	if _, err := Uninstall(t.Context(), c, r.deployment, ""); err != nil {
		t.Fatal(err)
	}
	quiet(t, c)
	if n := len(c.applies()); n != before || c.registered(t, mutatingKind, "postern-pods") != nil {
		t.Errorf("Applied %v after the end, want nothing", c.applies()[before:])
	}
}

// TestEventEndsAWait has a replica look only every ten seconds whether another Deployment still registers, which somebody deletes.
func TestEventEndsAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, ourNamespace())
		c.deploy(t, "postern", 1)
		c.deploy(t, "second", 1)
		settle(t, c, memberOf(t, c, "second", 1, slower))
		r := memberOf(t, c, "postern", 1, nil)
		run(t, r, reachable)
		eventually(t, "it stands aside", func() bool { return r.KeptOut() != nil })
		time.Sleep(time.Second)
		c.undeploy(t, "second")
		c.deleteAll(t)
		time.Sleep(2 * settleTime)
		if !isRegistrationOf(t, c, r) {
			t.Errorf("Registered by %v, want the one that is left", registeredBy(t, c))
		}
	})
}

// TestEventDoesNotEndTheWaitOfAFailure has the API server refuse a configuration, and somebody change another one all the time.
func TestEventDoesNotEndTheWaitOfAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, ourNamespace())
		var tries atomic.Int32
		c.PrependReactor("patch", "validatingwebhookconfigurations", func(clienttesting.Action) (bool, runtime.Object, error) {
			tries.Add(1)
			return true, nil, errors.New("refused")
		})
		run(t, newRegistrar(t, c, nil), reachable)
		eventually(t, "a half is registered", func() bool { return c.registered(t, mutatingKind, "postern-pods") != nil })
		for i := range 100 {
			c.editOne(t, mutatingKind, func(u *unstructured.Unstructured) {
				u.SetLabels(map[string]string{ManagedByLabel: ManagedBy, NamespaceLabel: "postern-system", "changed": strconv.Itoa(i)})
			})
			time.Sleep(settleTime)
		}
		if got := tries.Load(); got != 6 {
			t.Errorf("Tried %d times in 50 s, want 6: at once, and after 1, 2, 4, 8 and 16 s", got)
		}
	})
}
