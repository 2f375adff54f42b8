package registration

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	clienttesting "k8s.io/client-go/testing"

	"github.com/postern-dev/postern/pkg/router"
)

// TestHalvesAreInOrder checks that the validating half of a service is never registered without its mutating half. It
// would deny what the mutating half would have changed.
func TestHalvesAreInOrder(t *testing.T) {
	for name, removes := range map[string]func(*Registrar, *cluster) error{
		"the namespace is terminating": func(r *Registrar, c *cluster) error {
			dying := ourNamespace()
			dying.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)})
			if err := c.Tracker().Update(namespaces, dying, ""); err != nil {
				return err
			}
			_, err := r.sync(t.Context(), c.stores(t, r))
			return err
		},
		"uninstall": func(r *Registrar, c *cluster) error {
			_, err := Uninstall(t.Context(), c, r.deployment, "")
			return err
		},
		"the last replica leaves": func(r *Registrar, _ *cluster) error { return r.Leave(t.Context(), true) },
		"the family is disabled": func(r *Registrar, c *cluster) error {
			r.services = nil
			_, err := r.sync(t.Context(), c.stores(t, r))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, ourNamespace())
			r := newRegistrar(t, c, nil)
			r.noticeTime = noticeTime
			var kinds []string
			var at []time.Time
			record := func(action clienttesting.Action) (bool, runtime.Object, error) {
				if patch, ok := action.(clienttesting.PatchAction); ok && patch.GetPatchType() != types.ApplyPatchType {
					return false, nil, nil // It marks what is removed.
				}
				if resource := action.GetResource().Resource; strings.HasSuffix(resource, "configurations") {
					kinds, at = append(kinds, action.GetVerb()+" "+resource), append(at, time.Now())
				}
				return false, nil, nil
			}
			c.PrependReactor("patch", "*", record)
			c.PrependReactor("delete", "*", record)
			mustSync(t, r, c)
			if err := removes(r, c); err != nil {
				t.Fatal(err)
			}
			want := []string{"patch mutatingwebhookconfigurations", "patch validatingwebhookconfigurations", "delete validatingwebhookconfigurations", "delete mutatingwebhookconfigurations"}
			if !slices.Equal(kinds, want) {
				t.Fatalf("Got %v, want %v", kinds, want)
			}
			if d := at[3].Sub(at[2]); d < noticeTime {
				t.Errorf("The mutating half was deleted %v after the validating half, want a pause of %v", d, noticeTime)
			}
		})
	}
}

// TestUninstallIsForGood checks that no replica registers again, whether it runs or starts later.
func TestUninstallIsForGood(t *testing.T) {
	for name, objects := range map[string][]runtime.Object{"with a namespace": {ourNamespace()}, "without": nil} {
		t.Run(name, func(t *testing.T) {
			url := func(d *Deployment, _ *router.AdmissionService) { d.URL = "https://x" }
			c := newCluster(t, objects...)
			r, late := newRegistrar(t, c, url), newRegistrar(t, c, url)
			registry := measure(r)
			mustSync(t, r, c)
			var stamped []*unstructured.Unstructured
			c.PrependReactor("delete", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
				obj, err := c.Tracker().Get(action.GetResource(), "", action.(clienttesting.DeleteAction).GetName())
				if err == nil {
					stamped = append(stamped, obj.(*unstructured.Unstructured))
				}
				return false, nil, nil
			})
			before := len(c.applies())
			if err := c.Tracker().Add(other(mutatingKind, "postern-old")); err != nil {
				t.Fatal(err)
			}
			removed, err := Uninstall(t.Context(), c, r.deployment, "")
			want := []string{"mutatingwebhookconfigurations/postern-old", "mutatingwebhookconfigurations/postern-pods", "validatingwebhookconfigurations/postern-pods"}
			if slices.Sort(removed); err != nil || !slices.Equal(removed, want) {
				t.Fatalf("Removed %v (%v), want %v", removed, err, want)
			}
			for _, u := range stamped {
				r.notice(u)
			}
			running := []*Registrar{r}
			if objects != nil {
				running = append(running, late)
			}
			for _, r := range running {
				mustSync(t, r, c)
				if got := c.applies()[before:]; len(got) != 0 || c.registered(t, mutatingKind, "postern-pods") != nil {
					t.Errorf("Applied %v after the end, want nothing", got)
				}
				if err := r.Status(); err == nil || !strings.Contains(err.Error(), "uninstalled") {
					t.Errorf("Got the status %v, want the uninstall", err)
				}
			}
			if got := registeredMetrics(t, registry); !maps.Equal(got, map[string]float64{mutatingKind: 0, validatingKind: 0}) {
				t.Errorf("Got the metrics %v, want 0", got)
			}
		})
	}
}

// TestMutatingHalfStays has the API server refuse to remove the validating half, without which the mutating half would be missed.
func TestMutatingHalfStays(t *testing.T) {
	for name, failure := range map[string]error{
		"a conflict": apierrors.NewConflict(schema.GroupResource{}, "postern-pods", errors.New("it was changed")), "an error": errors.New("away"),
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, ourNamespace())
			r := newRegistrar(t, c, nil)
			mustSync(t, r, c)
			r.services = nil
			fails := true
			c.PrependReactor("delete", "validatingwebhookconfigurations", func(clienttesting.Action) (bool, runtime.Object, error) {
				return fails, nil, failure
			})
			if again, err := r.sync(t.Context(), c.stores(t, r)); (err == nil) != apierrors.IsConflict(failure) || err == nil && again != retryTime {
				t.Errorf("Got the error %v and a sync after %v", err, again)
			}
			if c.registered(t, mutatingKind, "postern-pods") == nil {
				t.Error("The mutating half is removed, and the validating half is not")
			}
			fails = false
			mustSync(t, r, c)
			if got := registeredBy(t, c); len(got) > 0 {
				t.Errorf("Registered %v, want nothing", got)
			}
		})
	}
}

// TestUninstallInARollout undoes an uninstall while replicas of another version run, which have removed nothing: nothing was there.
func TestUninstallInARollout(t *testing.T) {
	c := newCluster(t, ourNamespace())
	r := newRegistrar(t, c, nil)
	mustSync(t, r, c)
	if _, err := Uninstall(t.Context(), c, r.deployment, ""); err != nil {
		t.Fatal(err)
	}
	mustSync(t, r, c)
	if err := c.Tracker().Update(namespaces, ourNamespace(), ""); err != nil {
		t.Fatal(err)
	}
	r.know(mixed)
	mustSync(t, r, c)
	if got := registeredBy(t, c); len(got) > 0 || r.Status() == nil {
		t.Errorf("Registered %v with the status %v, want to wait for the end of the rollout", got, r.Status())
	}
	r.know(alone)
	mustSync(t, r, c)
	if !c.isRegistered(t, r) || r.Status() != nil {
		t.Errorf("Got the status %v, want both halves", r.Status())
	}
}

// TestUninstallIsUndone removes the annotation of the namespace.
func TestUninstallIsUndone(t *testing.T) {
	ns := ourNamespace()
	ns.SetAnnotations(map[string]string{UninstalledAnnotation: "true"})
	c := newCluster(t, ns)
	r := newRegistrar(t, c, nil)
	mustSync(t, r, c)
	if got := c.applies(); len(got) != 0 {
		t.Fatalf("Applied %v after an uninstall", got)
	}
	if err := c.Tracker().Update(namespaces, ourNamespace(), ""); err != nil {
		t.Fatal(err)
	}
	mustSync(t, r, c)
	if got := c.applies(); len(got) != 2 || r.Status() != nil {
		t.Errorf("Applied %v with the status %v, want both configurations", got, r.Status())
	}
}

func deletions(c *cluster) (names []string) {
	for _, a := range c.Actions() {
		if del, ok := a.(clienttesting.DeleteAction); ok {
			names = append(names, del.GetName())
		}
	}
	slices.Sort(names)
	return names
}

// TestUninstallOfADeployment checks that a Deployment that is installed after another one was uninstalled registers.
func TestUninstallOfADeployment(t *testing.T) {
	for _, tt := range []struct {
		own, mark string
		want      bool
	}{
		{"old", "old-uid", false},
		{"new", "old-uid", true},
		{"", "old-uid", false},
		{"new", "", false},
		{"new", "postern", true},
	} {
		c := newCluster(t, ourNamespace())
		r := newRegistrar(t, c, nil)
		if tt.own != "" {
			c.deploy(t, tt.own, 1)
			r = memberOf(t, c, tt.own, 1, nil)
		}
		if _, err := Uninstall(t.Context(), c, r.deployment, tt.mark); err != nil {
			t.Fatal(err)
		}
		mustSync(t, r, c)
		if got := c.isRegistered(t, r); got != tt.want || (r.Status() == nil) != tt.want {
			t.Errorf("Deployment %q registered after the uninstall of %q: %t, %v, want %t", tt.own, tt.mark, got, r.Status(), tt.want)
		}
	}
}

// TestStaleConfigurations checks that the leader removes what no living replica stands behind.
func TestStaleConfigurations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		canary := other(validatingKind, canaryName)
		canary.SetAnnotations(map[string]string{canaryAnnotation: "true"})
		canary.SetResourceVersion("1")
		c := newCluster(t, ourNamespace(), other(mutatingKind, "postern-old"), other(validatingKind, "postern-old"), canary)
		r := newRegistrar(t, c, nil)
		r.fence.rival = &claim{"postern", "postern-uid", 1, "d"}
		c.deploy(t, "postern", 1)
		mustSync(t, r, c)
		if got := deletions(c); len(got) != 0 {
			t.Fatalf("A replica of a lower rank deleted %v", got)
		}
		c.undeploy(t, "postern")
		check := func(when string, want ...string) {
			t.Helper()
			mustSync(t, r, c)
			if got := deletions(c); !slices.Equal(got, want) {
				t.Errorf("%s: deleted %v, want %v", when, got, want)
			}
		}
		check("At once", "postern-old", "postern-old")
		time.Sleep(abandonedTime - time.Second)
		check("Before a starting replica has had its time", "postern-old", "postern-old")
		changed := c.registered(t, validatingKind, canaryName).DeepCopy()
		changed.SetResourceVersion("2") // As if a replica had started again.
		if err := c.Tracker().Update(resources()[validatingKind], changed, ""); err != nil {
			t.Fatal(err)
		}
		check("Changed", "postern-old", "postern-old")
		time.Sleep(abandonedTime - time.Second)
		check("Before the other replica has had its time", "postern-old", "postern-old")
		time.Sleep(time.Second)
		check("Later", canaryName, "postern-old", "postern-old")
	})
}

// TestPrepareRemovesWhatIsNotServed checks that a replica that becomes ready answers nothing with 404. What it serves
// stays, since its rank may be lower than that of the replica that has registered it. What somebody has emptied, others may repair.
func TestPrepareRemovesWhatIsNotServed(t *testing.T) {
	calls := func(name, path string) *unstructured.Unstructured {
		u := other(mutatingKind, name)
		service := map[string]any{"namespace": "postern-system", "name": "postern", "path": path}
		u.Object["webhooks"] = []any{map[string]any{"name": "w.postern.dev", "clientConfig": map[string]any{"service": service}}}
		return u
	}
	canary := calls(canaryName, "/0123/canary/x/validate")
	canary.SetAnnotations(map[string]string{canaryAnnotation: "true"})
	c := newCluster(t, ourNamespace(), calls("postern-served", "/0123/pods/mutate"), calls("postern-removed", "/0123/removed/mutate"), canary,
		other(validatingKind, "postern-emptied"), other(mutatingKind, "postern-pods"))
	r := newRegistrar(t, c, nil)
	if err := r.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := deletions(c), []string{"postern-emptied", "postern-removed"}; !slices.Equal(got, want) {
		t.Errorf("Deleted %v, want %v", got, want)
	}
	if !r.joined.Load() {
		t.Error("The replica does not take part")
	}
}

// TestEmptiedConfigurationOfALaterRevision has an old replica start again after a later revision has registered a family without
// webhooks. Nobody calls the replica because of it.
func TestEmptiedConfigurationOfALaterRevision(t *testing.T) {
	c := newCluster(t, ourNamespace())
	c.deploy(t, "postern", 2)
	settle(t, c, memberOf(t, c, "postern", 2, nil))
	empty := other(validatingKind, "postern-later")
	empty.SetAnnotations(c.registered(t, validatingKind, "postern-pods").GetAnnotations())
	if err := c.Tracker().Create(resources()[validatingKind], empty, ""); err != nil {
		t.Fatal(err)
	}
	old := memberOf(t, c, "postern", 1, slower)
	old.canary.called = true
	if err := old.Prepare(t.Context()); err != nil || len(deletions(c)) > 0 {
		t.Errorf("Got the error %v and the deletions %v, want a replica that takes part", err, deletions(c))
	}
}

func TestLeave(t *testing.T) {
	for _, tt := range []struct {
		name       string
		deregister bool
		pods       []corev1.Pod
		want       []string
	}{
		{"the last", true, nil, []string{"postern-pods", "postern-pods"}},
		{"the last, without the flag", false, nil, nil},
		{"not the last", true, []corev1.Pod{runningPod("other")}, nil},
		{"beside a pod that ends", true, []corev1.Pod{terminating(runningPod("other"))}, []string{"postern-pods", "postern-pods"}},
		{"beside a pod that only crashes", true, []corev1.Pod{waitingPod("other")}, []string{"postern-pods", "postern-pods"}},
		{"beside itself", true, []corev1.Pod{runningPod("us")}, []string{"postern-pods", "postern-pods"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t, ourNamespace())
			r := newRegistrar(t, c, nil)
			mustSync(t, r, c)
			r.know(alone)
			r.know(func(f *Fleet) { f.pod = "us" })
			for _, p := range tt.pods {
				c.add(t, pods, &p)
			}
			before := len(c.applies())
			if err := r.Leave(t.Context(), tt.deregister); err != nil {
				t.Fatal(err)
			}
			mustSync(t, r, c)
			if got := deletions(c); !slices.Equal(got, tt.want) {
				t.Errorf("Deleted %v, want %v", got, tt.want)
			}
			if got := c.applies()[before:]; len(got) != 0 {
				t.Errorf("Applied %v after it left", got)
			}
		})
	}
}

// hangingClient is a client of an API server that answers no patch while it hangs, and makes each a moment after the client has gone.
type hangingClient struct {
	dynamic.Interface

	hangs *atomic.Bool
}

type hangingResource struct {
	dynamic.NamespaceableResourceInterface

	hangs *atomic.Bool
}

func (c hangingClient) Resource(gvr schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return hangingResource{c.Interface.Resource(gvr), c.hangs}
}

func (c hangingResource) Patch(ctx context.Context, name string, kind types.PatchType, data []byte, o metav1.PatchOptions, _ ...string) (*unstructured.Unstructured, error) {
	if c.hangs.Load() {
		<-ctx.Done()
		time.AfterFunc(recallTime/2, func() {
			_, _ = c.NamespaceableResourceInterface.Patch(context.WithoutCancel(ctx), name, kind, data, o)
		})
		return nil, ctx.Err()
	}
	return c.NamespaceableResourceInterface.Patch(ctx, name, kind, data, o)
}

// TestLeaveWhileASyncHangs has the last replica end while the API server does not answer what it registers.
func TestLeaveWhileASyncHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, ourNamespace())
		r := newRegistrar(t, c, nil)
		mustSync(t, r, c)
		r.know(alone)
		c.deleteAll(t)
		client := hangingClient{c, &atomic.Bool{}}
		client.hangs.Store(true)
		r.client, r.noticeTime = client, noticeTime
		synced := make(chan error, 1)
		stores := c.stores(t, r)
		go func() {
			_, err := r.sync(t.Context(), stores)
			synced <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		if err := r.Leave(ctx, true); err != nil {
			t.Errorf("Leaving: %v", err)
		}
		if err := <-synced; !errors.Is(err, context.Canceled) {
			t.Errorf("The sync ended with %v, want it to be ended", err)
		}
		time.Sleep(time.Minute)
		if got := registeredBy(t, c); len(got) > 0 {
			t.Errorf("Registered: %v, want nothing after the last replica has left", got)
		}
	})
}

func TestNamespaceThatIsNotThere(t *testing.T) {
	dying := ourNamespace()
	dying.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)})
	dying.SetFinalizers([]string{"kubernetes"})
	url := func(d *Deployment, _ *router.AdmissionService) { d.URL = "https://x" }
	for _, c := range []struct {
		name       string
		namespace  *unstructured.Unstructured
		change     func(*Deployment, *router.AdmissionService)
		wasThere   bool
		registered bool
		owners     int
	}{
		{"there", ourNamespace(), nil, false, true, 1},
		{"not there", nil, nil, false, false, 0},
		{"going", dying, nil, true, false, 0},
		{"not there, with a URL", nil, url, false, true, 0},
		{"there, with a URL", ourNamespace(), url, false, true, 1},
		{"gone, with a URL", nil, url, true, false, 0},
		{"going, with a URL", dying, url, true, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var objects []runtime.Object
			if c.namespace != nil {
				objects = append(objects, c.namespace)
			}
			cluster := newCluster(t, objects...)
			r := newRegistrar(t, cluster, c.change)
			r.owned.Store(c.wasThere)
			mustSync(t, r, cluster)
			got := cluster.registered(t, mutatingKind, "postern-pods")
			if (got != nil) != c.registered || got != nil && len(got.GetOwnerReferences()) != c.owners {
				t.Errorf("Got %v, want it registered: %v, with %d owners", got, c.registered, c.owners)
			}
		})
	}
}
