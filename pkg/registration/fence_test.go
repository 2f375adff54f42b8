package registration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/postern-dev/postern/pkg/router"
)

// deploy creates or changes a Deployment in our namespace. Its UID is the name and "-uid".
func (c *cluster) deploy(t *testing.T, name string, revision int, annotations ...string) {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment"}}
	u.SetNamespace("postern-system")
	u.SetName(name)
	u.SetUID(types.UID(name + "-uid"))
	all := map[string]string{revisionOfDeployment: strconv.Itoa(revision)}
	for i := 0; i+1 < len(annotations); i += 2 {
		all[annotations[i]] = annotations[i+1]
	}
	u.SetAnnotations(all)
	err := c.Tracker().Update(deployments, u, "postern-system")
	if apierrors.IsNotFound(err) {
		err = c.Tracker().Create(deployments, u, "postern-system")
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) undeploy(t *testing.T, name string) {
	t.Helper()
	if err := c.Tracker().Delete(deployments, "postern-system", name); err != nil {
		t.Fatal(err)
	}
}

// slower is another configuration of Postern.
func slower(d *Deployment, _ *router.AdmissionService) { d.Timeout = 3 * time.Second }

// memberOf returns a replica of a revision of a Deployment, or a process if the Deployment is "".
func memberOf(t *testing.T, c *cluster, deployment string, revision int64, change func(*Deployment, *router.AdmissionService)) *Registrar {
	t.Helper()
	r := newRegistrar(t, c, change)
	if deployment != "" {
		r.know(func(f *Fleet) {
			f.self.Deployment, f.self.UID, f.self.Revision = deployment, types.UID(deployment+"-uid"), revision
		})
	}
	return r
}

// registeredBy returns the claims of the configurations that are registered.
func registeredBy(t *testing.T, c *cluster) map[string]claim {
	t.Helper()
	out := map[string]claim{}
	for kind := range resources() {
		if u := c.registered(t, kind, "postern-pods"); u != nil {
			out[kind], _ = claimOf(u)
		}
	}
	return out
}

// isRegistrationOf reports whether all that is registered is as r desires it.
func isRegistrationOf(t *testing.T, c *cluster, r *Registrar) bool {
	t.Helper()
	own := r.fleet.claim()
	return c.isRegistered(t, r) && maps.Equal(registeredBy(t, c), map[string]claim{mutatingKind: own, validatingKind: own})
}

// deleteAll deletes both configurations, as somebody else would.
func (c *cluster) deleteAll(t *testing.T) {
	t.Helper()
	for _, gvr := range resources() {
		if err := c.Tracker().Delete(gvr, "", "postern-pods"); err != nil {
			t.Fatal(err)
		}
	}
}

// settle syncs all replicas some times, and checks that one more round writes nothing.
func settle(t *testing.T, c *cluster, replicas ...*Registrar) {
	t.Helper()
	for range 3 {
		for _, r := range replicas {
			mustSync(t, r, c)
		}
	}
	before, deleted := len(c.applies()), len(deletions(c))
	for _, r := range replicas {
		mustSync(t, r, c)
	}
	if got := c.applies()[before:]; len(got) > 0 || len(deletions(c)) > deleted {
		t.Errorf("Applied %v and deleted %v after all was quiet", got, deletions(c)[deleted:])
	}
}

// TestRanks compares replicas with what is registered.
func TestRanks(t *testing.T) {
	mine := claim{Deployment: "postern", UID: "postern-uid", Revision: 4, Digest: "d"}
	process := claim{Digest: "d"}
	for _, tt := range []struct {
		name       string
		own, other claim
		do         func(*cluster)
		turned     bool
		mine       bool
		owner      bool
		want       rank
	}{
		{name: "its own", own: mine, other: mine, turned: true, want: lower},
		{name: "its own of a process", own: process, other: process, turned: true, want: lower},
		{name: "an earlier revision", own: mine, other: claim{"postern", "postern-uid", 3, "e"}, turned: true, want: lower},
		{name: "a later revision", own: mine, other: claim{"postern", "postern-uid", 5, "d"}, want: higher},
		{name: "a revision that does not exist", own: mine, other: claim{"postern", "postern-uid", 6, "e"}, turned: true, want: lower},
		{name: "a later revision, unreadable", own: mine, other: claim{"postern", "postern-uid", 999, "e"}, do: forbid, want: higher},
		{name: "a later revision, deleted", own: mine, other: claim{"postern", "postern-uid", 5, "e"}, do: func(c *cluster) { c.undeploy(t, "postern") }, want: higher},
		{name: "another digest", own: mine, other: claim{"postern", "postern-uid", 4, "e"}, want: lower},
		{name: "another digest of a later start", own: mine, other: claim{"postern", "postern-uid", 4, "e"}, turned: true, want: later},
		{name: "another digest at once", own: mine, other: claim{"postern", "postern-uid", 4, "e"}, mine: true, want: lower},
		{name: "another digest of a later start, which has not written all", own: mine, other: claim{"postern", "postern-uid", 4, "c"}, mine: true, turned: true, want: later},
		{name: "a process", own: mine, other: claim{Digest: "e"}, turned: true, want: lower},
		{name: "a process, if it may not read Deployments", own: mine, other: claim{Digest: "e"}, do: forbid, turned: true, want: lower},
		{name: "a process, to an orphan", own: claim{"gone", "gone-uid", 4, "d"}, other: claim{Digest: "e"}, want: lower},
		{name: "a process of a later start, to an orphan", own: claim{"gone", "gone-uid", 4, "d"}, other: claim{Digest: "e"}, turned: true, want: later},
		{name: "another process", own: process, other: claim{Digest: "e"}, want: lower},
		{name: "another process of a later start", own: process, other: claim{Digest: "e"}, turned: true, want: later},
		{name: "a Deployment, to a process", own: process, other: mine, want: foreign},
		{name: "a Deployment that does not exist, to a process", own: process, other: claim{"gone", "gone-uid", 1, "d"}, turned: true, want: lower},
		{name: "a Deployment made again, to a process", own: process, other: claim{"postern", "former-uid", 4, "d"}, turned: true, want: lower},
		{name: "an unreadable Deployment, to a process", own: process, other: mine, do: forbid, want: lower},
		{name: "an unreadable Deployment that registered later, to a process", own: process, other: mine, do: forbid, turned: true, want: later},
		{name: "an unreadable Deployment, to a Deployment", own: mine, other: claim{"second", "second-uid", 1, "d"}, do: forbid, turned: true, want: later},
		{name: "another Deployment", own: mine, other: claim{"second", "second-uid", 1, "d"}, want: foreign},
		{name: "another Deployment that does not exist", own: mine, other: claim{"gone", "gone-uid", 9, "d"}, turned: true, want: lower},
		{name: "itself made again", own: mine, other: claim{"postern", "former-uid", 9, "d"}, turned: true, want: lower},
		{name: "another Deployment, of an orphan", own: claim{"gone", "gone-uid", 4, "d"}, other: claim{"second", "second-uid", 1, "d"}, want: higher},
		{name: "its successor", own: mine, other: claim{"second", "second-uid", 1, "d"}, do: func(c *cluster) { c.deploy(t, "second", 1, ReplacesAnnotation, "postern") }, want: higher},
		{name: "its predecessor", own: mine, other: claim{"second", "second-uid", 1, "d"}, do: func(c *cluster) { c.deploy(t, "postern", 5, ReplacesAnnotation, "second") }, turned: true, want: lower},
		{name: "the second of two at once", own: mine, other: claim{"second", "second-uid", 1, "d"}, mine: true, want: lower},
		{name: "another Deployment that was later", own: claim{"second", "second-uid", 1, "d"}, other: mine, owner: true, want: lower},
		{name: "the first of two at once", own: claim{"second", "second-uid", 1, "d"}, other: mine, mine: true, want: foreign},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t)
			c.deploy(t, "postern", 5)
			c.deploy(t, "second", 1)
			if tt.do != nil {
				tt.do(c)
			}
			f := &fence{client: c, namespace: "postern-system"}
			got, err := f.rank(t.Context(), self{tt.own, tt.mine, tt.owner, tt.turned}, tt.other)
			if err != nil || got != tt.want {
				t.Errorf("Got %v (%v), want %v", got, err, tt.want)
			}
		})
	}
}

// forbid refuses to read Deployments.
func forbid(c *cluster) {
	c.PrependReactor("get", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(deployments.GroupResource(), "postern", nil)
	})
}

// TestTurns is about replicas of which none is above the other: who started last writes.
func TestTurns(t *testing.T) {
	own, second, third := claim{"postern", "postern-uid", 4, "e"}, claim{"postern", "postern-uid", 4, "d"}, claim{"postern", "postern-uid", 4, "f"}
	type step struct {
		registered []claim
		rival      claim // It is empty if this replica does not yield.
	}
	takeTurn, none := step{}, claim{}
	for name, steps := range map[string][]step{
		"it starts last":                        {{[]claim{second}, none}, {[]claim{own, second}, none}, {[]claim{own}, none}},
		"it has registered, and another starts": {{[]claim{own}, none}, {[]claim{own, second}, second}, {[]claim{second}, second}},
		"an equal one starts last":              {{[]claim{own}, none}, {[]claim{third}, third}, {[]claim{own, third}, third}, {[]claim{own}, none}},
		"another does not go on":                {{[]claim{own}, none}, {[]claim{own, second}, second}, takeTurn, {[]claim{own, second}, none}, {[]claim{own}, none}, {[]claim{own, third}, third}},
		"its cache is late":                     {{[]claim{own}, none}, {[]claim{own, second}, second}, {[]claim{own}, none}},
		"two start":                             {{[]claim{own}, none}, {[]claim{second, third}, third}, {[]claim{third, second}, third}},
		"one of two was overwritten":            {{[]claim{own}, none}, {[]claim{own, third}, third}, {[]claim{own, second}, second}, {[]claim{own}, none}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.deploy(t, "postern", 4)
			f := &fence{client: c, namespace: "postern-system"}
			for i, s := range steps {
				if s.registered == nil {
					f.takeTurn()
					continue
				}
				var configs []*unstructured.Unstructured
				for _, registered := range s.registered {
					text, err := registered.text()
					if err != nil {
						t.Fatal(err)
					}
					u := other(validatingKind, "postern-pods")
					u.SetAnnotations(map[string]string{ClaimAnnotation: text})
					configs = append(configs, u)
				}
				if v, err := f.look(t.Context(), own, configs); err != nil || v.yields() != (s.rival != none) || v.yields() && *v.rival != s.rival {
					t.Errorf("At look %d: yields to %v (%v), want %v", i, v.rival, err, s.rival)
				}
			}
		})
	}
}

// TestClaims reads what may be in the annotation.
func TestClaims(t *testing.T) {
	for text, want := range map[string]claim{
		`{"deployment":"postern","uid":"u","revision":3,"digest":"d"}`: {"postern", "u", 3, "d"},
		`{"digest":"d"}`:                 {Digest: "d"},
		``:                               {},
		`x`:                              {},
		`{"deployment":"a/b","uid":"u"}`: {},
		`{"uid":"u","revision":9}`:       {},
		`{"deployment":"a","uid":"u","digest":"d"}`:    {Digest: "d"},
		`{"deployment":"a","revision":9,"digest":"d"}`: {Digest: "d"},
		`{"deployment":"a","uid":"u","digest":1}`:      {},
	} {
		u := other(mutatingKind, "postern-pods")
		u.SetAnnotations(map[string]string{ClaimAnnotation: text})
		if got, claimed := claimOf(u); got != want || !claimed {
			t.Errorf("%s: got %+v, %t, want %+v", text, got, claimed, want)
		}
	}
	if got, claimed := claimOf(other(mutatingKind, "postern-pods")); claimed {
		t.Errorf("Got the claim %+v of a configuration without one", got)
	}
}

// TestRolloutByTheFence has two revisions of a Deployment, a restart of an old replica, a deletion, and a rollback.
func TestRolloutByTheFence(t *testing.T) {
	c := newCluster(t, ourNamespace())
	c.deploy(t, "postern", 1)
	old := memberOf(t, c, "postern", 1, nil)
	settle(t, c, old)
	c.deploy(t, "postern", 2)
	next := memberOf(t, c, "postern", 2, slower)
	settle(t, c, old, next)
	if !isRegistrationOf(t, c, next) {
		t.Fatalf("Registered by %v, want revision 2", registeredBy(t, c))
	}
	restarted := memberOf(t, c, "postern", 1, nil)
	if err := restarted.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	settle(t, c, restarted, old, next)
	c.deleteAll(t)
	settle(t, c, old, restarted)
	if got := registeredBy(t, c); len(got) > 0 {
		t.Errorf("Registered by %v, want that the old replicas remember the later revision", got)
	}
	settle(t, c, old, next, restarted)
	if !isRegistrationOf(t, c, next) {
		t.Errorf("Registered by %v, want revision 2 again", registeredBy(t, c))
	}
	for _, r := range []*Registrar{old, restarted} {
		if err := r.Status(); err != nil {
			t.Errorf("Got the status %v of a replica that yields", err)
		}
		r.know(func(f *Fleet) { f.self.Revision = 3 })
	}
	c.deploy(t, "postern", 3)
	settle(t, c, next, old, restarted)
	if !isRegistrationOf(t, c, old) {
		t.Errorf("Registered by %v, want the revision that the rollback returned to", registeredBy(t, c))
	}
}

// TestForgeries checks that neither a pod nor a claim of a replica that does not exist keeps anybody from registering.
func TestForgeries(t *testing.T) {
	const none = "no claim"
	for name, r := range map[string]func(*cluster) *Registrar{
		"a Deployment": func(c *cluster) *Registrar { return memberOf(t, c, "postern", 4, nil) },
		"a process":    func(c *cluster) *Registrar { return memberOf(t, c, "", 0, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, ourNamespace())
			c.deploy(t, "postern", 4)
			c.deploy(t, "second", 1)
			r := r(c)
			settle(t, c, r)
			r.know(mixed)
			c.deleteAll(t)
			settle(t, c, r)
			if !isRegistrationOf(t, c, r) || r.Status() != nil {
				t.Errorf("Registered by %v with the status %v, want a repair in spite of the pod", registeredBy(t, c), r.Status())
			}
			for _, text := range []string{
				`{"deployment":"postern","uid":"postern-uid","revision":999,"digest":"x"}`, `{"deployment":"none","uid":"x","revision":1}`, `{"deployment":"none","revision":9}`, `{"revision":9}`, `{"digest":"x"}`, `x`,
				`{"deployment":"second","uid":"second-uid","revision":1,"digest":"x"}`, none,
			} {
				if r.fleet.claim().isProcess() && text != none && text != `{"deployment":"none","uid":"x","revision":1}` {
					continue // Another process has registered later, or the Deployment lives.
				}
				c.edit(t, func(u *unstructured.Unstructured) {
					webhookField("Ignore", "failurePolicy")(u)
					u.SetAnnotations(map[string]string{ClaimAnnotation: text})
					if text == none {
						u.SetAnnotations(nil)
					}
				})
				settle(t, c, r)
				if !isRegistrationOf(t, c, r) || r.Status() != nil {
					t.Errorf("%s: registered by %v with the status %v, want a repair", text, registeredBy(t, c), r.Status())
				}
			}
		})
	}
}

// TestOthersAreKeptOut has a process and a second Deployment, which would remove what they do not serve.
func TestOthersAreKeptOut(t *testing.T) {
	for _, tt := range []struct{ name, deployment, want string }{
		{"a process", "", "the webhooks are registered by Deployment postern, and this is none of its pods, which tell their names by POD_NAME: delete it, or use another --webhook-namespace"},
		{"a second Deployment", "second", "the webhooks are registered by Deployment postern: delete it, use another --webhook-namespace, or annotate Deployment second with postern.dev/replaces=postern to take its place"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t, ourNamespace())
			c.deploy(t, "postern", 7)
			c.deploy(t, "second", 9)
			first := memberOf(t, c, "postern", 7, nil)
			settle(t, c, first)
			other := memberOf(t, c, tt.deployment, 9, slower)
			other.bundle = newBundle("theirs")
			registry := measure(other)
			other.services = nil
			other.joined.Store(false)
			if err := other.Prepare(t.Context()); err == nil || err.Error() != tt.want {
				t.Errorf("Got the error %v, want %s", err, tt.want)
			}
			if err := other.Leave(t.Context(), true); err != nil {
				t.Error(err)
			}
			if got := deletions(c); len(got) > 0 {
				t.Errorf("A replica that is kept out deleted %v", got)
			}
			other.leaving.Store(false)
			// It was prepared before the first one came.
			other.services = first.services
			settle(t, c, other, first)
			c.deleteAll(t)
			settle(t, c, other, first)
			if err := other.introduce(t.Context()); err == nil {
				t.Error("A replica that is kept out has added its CA")
			}
			// An uninstall of this replica is nothing that an administrator has to undo.
			marked := ourNamespace()
			marked.SetAnnotations(map[string]string{UninstalledAnnotation: "second-uid"})
			if err := c.Tracker().Update(namespaces, marked, ""); err != nil {
				t.Fatal(err)
			}
			other.metrics.setUninstalled(true)
			again, err := other.sync(t.Context(), c.stores(t, other))
			if got := gauges(t, registry, "postern_uninstalled"); !maps.Equal(got, map[string]float64{"": 0}) {
				t.Errorf("Got the metric %v of an uninstall, want 0", got)
			}
			if err := c.Tracker().Update(namespaces, ourNamespace(), ""); err != nil {
				t.Fatal(err)
			}
			if !isRegistrationOf(t, c, first) || err != nil || again != rivalInterval || other.Status() == nil || other.Status().Error() != tt.want || (other.KeptOut() != nil) != (tt.deployment != "") {
				t.Errorf("Registered by %v, got the status %v, looks again after %v (%v)", registeredBy(t, c), other.Status(), again, err)
			}
			if got := registeredMetrics(t, registry); !maps.Equal(got, map[string]float64{mutatingKind: 0, validatingKind: 0}) {
				t.Errorf("Got the metrics %v, want 0", got)
			}
			if bundleOf(c.registered(t, mutatingKind, "postern-pods")) != bundleOf(mustDesire(t, first)[configKey{mutatingKind, "postern-pods"}]) {
				t.Error("The CA of the replica that is kept out is registered")
			}
			c.undeploy(t, "postern")
			if err := other.Prepare(t.Context()); err != nil {
				t.Error(err)
			}
			settle(t, c, other, first) // The first one is an orphan now.
			own := other.fleet.claim()
			if got := registeredBy(t, c); !maps.Equal(got, map[string]claim{mutatingKind: own, validatingKind: own}) || other.KeptOut() != nil {
				t.Errorf("Registered by %v, want what is left", got)
			}
		})
	}
}

func mustDesire(t *testing.T, r *Registrar) map[configKey]*unstructured.Unstructured {
	t.Helper()
	all, err := r.desired(nil, r.fleet.claim(), r.endpoint())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestRenamedDeployment has a Deployment of another name that takes the place of the first one while that exists, as if it
// were deleted only when the new one is ready.
func TestRenamedDeployment(t *testing.T) {
	c := newCluster(t, ourNamespace())
	c.deploy(t, "postern", 7)
	first := memberOf(t, c, "postern", 7, nil)
	settle(t, c, first)
	c.deploy(t, "renamed", 1, ReplacesAnnotation, "postern")
	renamed := memberOf(t, c, "renamed", 1, slower)
	if err := renamed.Prepare(t.Context()); err != nil {
		t.Fatalf("The new Deployment does not become ready: %v", err)
	}
	settle(t, c, renamed, first)
	restarted := memberOf(t, c, "postern", 7, nil)
	if err := restarted.Prepare(t.Context()); err != nil {
		t.Errorf("A replica of the old Deployment does not become ready any more: %v", err)
	}
	settle(t, c, restarted, renamed, first)
	if !isRegistrationOf(t, c, renamed) || first.Status() != nil || restarted.Status() != nil {
		t.Errorf("Registered by %v, got the status %v and %v of the old replicas", registeredBy(t, c), first.Status(), restarted.Status())
	}
	c.undeploy(t, "postern")
	settle(t, c, first, renamed)
	if !isRegistrationOf(t, c, renamed) {
		t.Errorf("Registered by %v after the old Deployment was deleted", registeredBy(t, c))
	}
}

// TestTwoDeploymentsAtOnce has two Deployments that have each registered one half.
func TestTwoDeploymentsAtOnce(t *testing.T) {
	c := newCluster(t, ourNamespace())
	c.deploy(t, "first", 1)
	c.deploy(t, "second", 1)
	first, second := memberOf(t, c, "first", 1, nil), memberOf(t, c, "second", 1, slower)
	mustSync(t, first, c)
	c.takeHalf(t, second, validatingKind)
	settle(t, c, second, first)
	if !isRegistrationOf(t, c, first) || second.Status() == nil {
		t.Errorf("Registered by %v, got the status %v", registeredBy(t, c), second.Status())
	}
}

// TestConfigMapChanges has two replicas of one revision of which the later one has another configuration.
func TestConfigMapChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, ourNamespace())
		c.deploy(t, "postern", 4)
		first, twin := memberOf(t, c, "postern", 4, nil), memberOf(t, c, "postern", 4, nil)
		var told []string
		first.Notify = func(_, reason, message string) { told = append(told, reason+" "+message) }
		settle(t, c, first, twin)
		told = nil
		later := memberOf(t, c, "postern", 4, slower)
		if err := later.Prepare(t.Context()); err != nil {
			t.Fatal(err)
		}
		settle(t, c, later, first, twin)
		if !isRegistrationOf(t, c, later) || first.Status() != nil {
			t.Errorf("Registered by %v, want the later replica", registeredBy(t, c))
		}
		want := []string{"ConfigurationDiffers Replicas of revision 4 register different webhooks, and those that started last prevail. " +
			"Restart all replicas, so that they have the same configuration: kubectl -n postern-system rollout restart deployment/postern"}
		if !slices.Equal(told, want) {
			t.Errorf("Told %q, want %q", told, want)
		}
		c.deleteAll(t)
		settle(t, c, first, twin, later)
		if !isRegistrationOf(t, c, later) {
			t.Errorf("Registered by %v, want the later replica again", registeredBy(t, c))
		}
		// The ConfigMap is as before, and the later replica starts again with it.
		again := memberOf(t, c, "postern", 4, nil)
		settle(t, c, again, first, twin)
		if !isRegistrationOf(t, c, first) || first.fence.rival != nil {
			t.Errorf("Registered by %v, want the configuration of all", registeredBy(t, c))
		}
		// Another one comes, and is gone for good. Somebody deletes what it has registered.
		last := memberOf(t, c, "postern", 4, slower)
		settle(t, c, last, first, twin, again)
		c.deleteAll(t)
		settle(t, c, first, twin, again)
		if got := registeredBy(t, c); len(got) > 0 {
			t.Errorf("Registered by %v at once, want time for the one that registered it", got)
		}
		time.Sleep(goneTime)
		settle(t, c, first, twin, again)
		if !isRegistrationOf(t, c, first) || first.Status() != nil {
			t.Errorf("Registered by %v with the status %v, want those that are left", registeredBy(t, c), first.Status())
		}
	})
}

// TestTakeover has a sync of the replica that registers fall between the two writes of one that started later.
func TestTakeover(t *testing.T) {
	for name, deployment := range map[string]string{"a Deployment": "postern", "processes": ""} {
		for _, smaller := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, the digest is smaller: %t", name, smaller), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newCluster(t, ourNamespace())
					c.deploy(t, "postern", 4)
					first, later := peers(t, c, deployment)
					if smaller {
						first, later = later, first
					}
					settle(t, c, first)
					c.takeHalf(t, later, mutatingKind)
					settle(t, c, first)
					if got := registeredBy(t, c); got[mutatingKind] != later.fleet.claim() || got[validatingKind] != first.fleet.claim() {
						t.Fatalf("Registered by %v, want time for the one that started later", got)
					}
					mustSync(t, later, c)
					if !isRegistrationOf(t, c, later) {
						t.Errorf("Registered by %v, want the one that started later", registeredBy(t, c))
					}
					settle(t, c, first, later)
					time.Sleep(3 * goneTime)
					settle(t, c, first, later)
					if !isRegistrationOf(t, c, later) {
						t.Errorf("Registered by %v after some time, want the one that started later", registeredBy(t, c))
					}
				})
			})
		}
	}
}

// take writes a configuration as r desires it.
func (c *cluster) take(t *testing.T, r *Registrar, key configKey) {
	t.Helper()
	if err := c.Tracker().Update(resources()[key.kind], mustDesire(t, r)[key], ""); err != nil {
		t.Fatal(err)
	}
}

// takeHalf writes one half of the service.
func (c *cluster) takeHalf(t *testing.T, r *Registrar, kind string) {
	t.Helper()
	c.take(t, r, configKey{kind, "postern-pods"})
}

// TestTwoConfigurationsAtOnce has two replicas of which none is above the other. Each has overwritten one half of the other.
func TestTwoConfigurationsAtOnce(t *testing.T) {
	for name, do := range map[string]func(*cluster) (x, y *Registrar){
		"a Deployment": func(c *cluster) (x, y *Registrar) { return peers(t, c, "postern") },
		"processes":    func(c *cluster) (x, y *Registrar) { return peers(t, c, "") },
		"Deployments that cannot be read": func(c *cluster) (x, y *Registrar) {
			forbid(c)
			return memberOf(t, c, "second", 1, nil), memberOf(t, c, "postern", 4, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, ourNamespace())
				c.deploy(t, "postern", 4)
				c.deploy(t, "second", 1)
				x, y := do(c)
				settle(t, c, x, y)
				for _, r := range []*Registrar{x, y} {
					r.fence.endTurn()
				}
				c.takeHalf(t, x, mutatingKind)
				c.takeHalf(t, y, validatingKind)
				for range 2 {
					settle(t, c, x, y)
					if got := registeredBy(t, c); got[mutatingKind] == got[validatingKind] {
						t.Fatalf("Registered by %v at once, want time for each", got)
					}
					time.Sleep(goneTime / 2)
				}
				settle(t, c, x, y)
				if !isRegistrationOf(t, c, y) || x.Status() != nil || y.Status() != nil {
					t.Errorf("Registered by %v with the status %v and %v, want the one with the larger revision or digest", registeredBy(t, c), x.Status(), y.Status())
				}
			})
		})
	}
}

// TestTakeoverThatIsSlow has a replica that started later write the second half long after the first, because it is slow or because the
// API server is away.
func TestTakeoverThatIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, ourNamespace())
		c.deploy(t, "postern", 4)
		later, first := peers(t, c, "postern")
		second := namedService("second")
		for _, r := range []*Registrar{first, later} {
			r.services = append(r.services, second)
		}
		settle(t, c, first)
		mustSync(t, first, c)
		for _, key := range []configKey{{mutatingKind, "postern-pods"}, {mutatingKind, "postern-second"}, {validatingKind, "postern-pods"}} {
			c.take(t, later, key)
			mustSync(t, first, c)
			time.Sleep(goneTime - time.Second)
			mustSync(t, first, c)
		}
		c.outage(t, first)
		time.Sleep(time.Minute)
		settle(t, c, first)
		if u := c.registered(t, validatingKind, "postern-second"); u == nil || c.registered(t, mutatingKind, "postern-pods") == nil {
			t.Fatalf("Registered %v", u)
		} else if got, _ := claimOf(c.registered(t, mutatingKind, "postern-pods")); got != later.fleet.claim() {
			t.Errorf("Registered by %v, want time for the one that started later", got)
		}
		settle(t, c, later, first)
		if !isRegistrationOf(t, c, later) {
			t.Errorf("Registered by %v, want the one that started later", registeredBy(t, c))
		}
	})
}

// TestTurnLastsUntilAllIsRemoved has a change by somebody else keep a replica from removing what one that started earlier serves.
func TestTurnLastsUntilAllIsRemoved(t *testing.T) {
	c := newCluster(t, ourNamespace())
	c.deploy(t, "postern", 4)
	first, later := memberOf(t, c, "postern", 4, nil), memberOf(t, c, "postern", 4, onlyValidating)
	settle(t, c, first)
	conflicts := true
	c.PrependReactor("patch", "mutatingwebhookconfigurations", func(clienttesting.Action) (bool, runtime.Object, error) {
		return conflicts, nil, apierrors.NewConflict(schema.GroupResource{}, "postern-pods", errors.New("it has changed"))
	})
	if again, err := later.sync(t.Context(), c.stores(t, later)); err != nil || again == 0 || later.fence.turned {
		t.Errorf("Got %v and %v, and the turn is over: %t, want another attempt", again, err, later.fence.turned)
	}
	conflicts = false
	mustSync(t, first, c)
	settle(t, c, later, first)
	if got := registeredBy(t, c); !maps.Equal(got, map[string]claim{validatingKind: later.fleet.claim()}) {
		t.Errorf("Registered by %v, want the half of the one that started later", got)
	}
}

// outage has a sync of r find that the API server is away.
func (c *cluster) outage(t *testing.T, r *Registrar) {
	t.Helper()
	away := true
	c.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) { return away, nil, errors.New("away") })
	if _, err := r.sync(t.Context(), c.stores(t, r)); err == nil || !strings.Contains(err.Error(), "away") {
		t.Fatalf("Got the error %v, want that of the API server", err)
	}
	away = false
}

// peers returns two replicas of which none is above the other. The second one has the larger digest.
func peers(t *testing.T, c *cluster, deployment string) (x, y *Registrar) {
	t.Helper()
	x, y = memberOf(t, c, deployment, 4, nil), memberOf(t, c, deployment, 4, slower)
	if x.fleet.claim().Digest > y.fleet.claim().Digest {
		x, y = y, x
	}
	return x, y
}

// TestPeerThatEndsHalfway has a peer that ends after it has written one half.
func TestPeerThatEndsHalfway(t *testing.T) {
	for name, deployment := range map[string]string{"a Deployment": "postern", "processes": ""} {
		for enough, smaller := range map[time.Duration]bool{goneTime: false, 2 * goneTime: true} {
			t.Run(fmt.Sprintf("%s, %s", name, enough), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newCluster(t, ourNamespace())
					c.deploy(t, "postern", 4)
					y, x := peers(t, c, deployment)
					if smaller {
						x, y = y, x
					}
					settle(t, c, x)
					ends := true
					c.PrependReactor("patch", "validatingwebhookconfigurations", func(clienttesting.Action) (bool, runtime.Object, error) {
						return ends, nil, errors.New("it ends")
					})
					if _, err := y.sync(t.Context(), c.stores(t, y)); err == nil {
						t.Fatal("Got no error")
					}
					ends = false
					waits := func(left time.Duration) {
						settle(t, c, x)
						again, err := x.sync(t.Context(), c.stores(t, x))
						if got := registeredBy(t, c); err != nil || got[mutatingKind] != y.fleet.claim() || again != left {
							t.Errorf("Registered by %v, another look after %s (%v), want %s for the peer", got, again, err, left)
						}
					}
					waits(enough)
					time.Sleep(enough - time.Second)
					canary := other(validatingKind, "postern-canary") // It does not matter.
					canary.SetAnnotations(map[string]string{canaryAnnotation: ""})
					if err := c.Tracker().Create(resources()[validatingKind], canary, ""); err != nil {
						t.Fatal(err)
					}
					waits(time.Second)
					time.Sleep(time.Second)
					settle(t, c, x)
					if !isRegistrationOf(t, c, x) || x.Status() != nil {
						t.Errorf("Registered by %v with the status %v, want the one that is left", registeredBy(t, c), x.Status())
					}
				})
			})
		}
	}
}

// TestPeerThatCannotWrite has a peer of whose configurations the API server refuses one each time.
func TestPeerThatCannotWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, ourNamespace())
		c.deploy(t, "postern", 4)
		y, x := peers(t, c, "postern")
		settle(t, c, x)
		refused, err := y.fleet.claim().text()
		if err != nil {
			t.Fatal(err)
		}
		c.PrependReactor("patch", "validatingwebhookconfigurations", func(a clienttesting.Action) (bool, runtime.Object, error) {
			return strings.Contains(string(a.(clienttesting.PatchAction).GetPatch()), strings.ReplaceAll(refused, `"`, `\"`)), nil, errors.New("refused by a policy")
		})
		for range 100 {
			y.attempt(t.Context(), c.stores(t, y))
			time.Sleep(5 * time.Second)
			mustSync(t, x, c)
			time.Sleep(5 * time.Second)
		}
		if !isRegistrationOf(t, c, x) || len(c.applies()) > 4*maxTries {
			t.Errorf("Registered by %v after %d writes, want no fight", registeredBy(t, c), len(c.applies()))
		}
	})
}

// TestLaterRevisionEndsHalfway has a later revision that has removed a service, and written one half of another one, and then only
// crashes. What somebody deletes is restored, and what was removed is not.
func TestLaterRevisionEndsHalfway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, ourNamespace())
		c.deploy(t, "postern", 2)
		old := memberOf(t, c, "postern", 1, nil)
		removed := namedService("removed")
		old.services = append(old.services, removed)
		settle(t, c, old)
		next := memberOf(t, c, "postern", 2, slower)
		var between map[string]cache.Store
		c.PrependReactor("delete", "mutatingwebhookconfigurations", func(clienttesting.Action) (bool, runtime.Object, error) {
			if between == nil {
				between = c.stores(t, old) // It is marked, and still there.
			}
			return false, nil, nil
		})
		old.know(mixed)
		if err := next.Prepare(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.tell(old)
		if _, err := old.sync(t.Context(), between); err != nil && !apierrors.IsNotFound(err) || old.fence.rival != nil {
			t.Fatalf("Yields to %v (%v), which has registered nothing", old.fence.rival, err)
		}
		c.tell(old)
		settle(t, c, old)
		ends := true
		c.PrependReactor("patch", "validatingwebhookconfigurations", func(clienttesting.Action) (bool, runtime.Object, error) {
			return ends, nil, errors.New("it ends")
		})
		if _, err := next.sync(t.Context(), c.stores(t, next)); err == nil {
			t.Fatal("Got no error")
		}
		ends = false
		old.know(func(f *Fleet) { f.running = false })
		settle(t, c, old)
		c.deleteAll(t)
		settle(t, c, old)
		time.Sleep(goneTime)
		settle(t, c, old)
		if got := registeredBy(t, c); got[mutatingKind] != next.fleet.claim() || got[validatingKind] != old.fleet.claim() || old.Status() != nil {
			t.Errorf("Registered by %v with the status %v, want both halves as they were", got, old.Status())
		}
		if c.registered(t, mutatingKind, "postern-removed") != nil || c.registered(t, validatingKind, "postern-removed") != nil {
			t.Error("What the later revision removed is there again")
		}
	})
}

// TestNothingToRegister has a later revision that removes everything and registers nothing, of which an earlier one then hears.
func TestNothingToRegister(t *testing.T) {
	c := newCluster(t, ourNamespace())
	c.deploy(t, "postern", 2)
	old := memberOf(t, c, "postern", 1, nil)
	settle(t, c, old)
	registry := measure(old)
	old.fence.rival = &claim{"postern", "postern-uid", 2, "d"}
	c.deleteAll(t)
	settle(t, c, old)
	if err := old.Status(); err == nil || err.Error() != "nothing is registered, which is left to revision 2 of Deployment postern" || len(c.applies()) > 2 {
		t.Errorf("Got the status %v, applied %v", err, c.applies())
	}
	if got := registeredMetrics(t, registry); !maps.Equal(got, map[string]float64{mutatingKind: 0, validatingKind: 0}) {
		t.Errorf("Got the metrics %v, want 0", got)
	}
}

// TestRestartInARollout has an old replica start again after a later revision has registered what it does not serve.
func TestRestartInARollout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, ourNamespace())
		c.deploy(t, "postern", 2)
		next := memberOf(t, c, "postern", 2, func(_ *Deployment, s *router.AdmissionService) { s.Path = "/added" })
		settle(t, c, next)
		old := memberOf(t, c, "postern", 1, nil)
		for range 2 {
			if err := old.Prepare(t.Context()); err == nil || !strings.HasSuffix(err.Error(), "postern-pods is not served by this replica, and was registered by replicas of a higher rank") {
				t.Errorf("Got the error %v, want what it does not serve", err)
			}
		}
		time.Sleep(unservedTime)
		if err := old.Prepare(t.Context()); err != nil {
			t.Error(err)
		}
		settle(t, c, old)
		if got := deletions(c); len(got) > 0 {
			t.Errorf("A replica of an earlier revision deleted %v", got)
		}
		// A rollback removes it.
		c.deploy(t, "postern", 3)
		old.know(func(f *Fleet) { f.self.Revision = 3 })
		if err := old.Prepare(t.Context()); err != nil {
			t.Error(err)
		}
		if got := deletions(c); len(got) != 2 {
			t.Errorf("Deleted %v, want what the replicas do not serve", got)
		}
	})
}

// TestDeletionsNameWhatWasSeen checks the preconditions of deletions.
func TestDeletionsNameWhatWasSeen(t *testing.T) {
	stale := other(mutatingKind, "postern-old")
	stale.SetUID("old-uid")
	stale.SetResourceVersion("17")
	c := newCluster(t, ourNamespace(), stale)
	mustSync(t, newRegistrar(t, c, nil), c)
	var got []string
	for _, a := range c.Actions() {
		if del, ok := a.(clienttesting.DeleteActionImpl); ok {
			p := del.GetDeleteOptions().Preconditions
			got = append(got, fmt.Sprint(*p.UID, " ", *p.ResourceVersion))
		}
	}
	if want := []string{"old-uid 17"}; !slices.Equal(got, want) {
		t.Errorf("Got the preconditions %q, want %q", got, want)
	}
}

// TestLeaveByTheFence has the last replica of an earlier revision leave, which is the last one that runs.
func TestLeaveByTheFence(t *testing.T) {
	c := newCluster(t, ourNamespace())
	c.deploy(t, "postern", 2)
	next, old := memberOf(t, c, "postern", 2, slower), memberOf(t, c, "postern", 1, nil)
	settle(t, c, next, old)
	if err := old.Leave(t.Context(), true); err != nil || len(deletions(c)) > 0 {
		t.Errorf("Deleted %v (%v), want nothing of the later revision", deletions(c), err)
	}
	change := func(c *cluster, do func(*unstructured.Unstructured)) {
		d, err := c.Tracker().Get(deployments, "postern-system", "postern")
		if err != nil {
			t.Fatal(err)
		}
		u := d.(*unstructured.Unstructured).DeepCopy()
		do(u)
		if err := c.Tracker().Update(deployments, u, "postern-system"); err != nil {
			t.Fatal(err)
		}
	}
	// The Deployment ends. The replicas of the later revision only crashed.
	for name, ends := range map[string]func(*cluster){
		"deleted": func(c *cluster) { c.undeploy(t, "postern") },
		"terminating": func(c *cluster) {
			change(c, func(u *unstructured.Unstructured) { u.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)}) })
		},
		"scaled to zero": func(c *cluster) {
			change(c, func(u *unstructured.Unstructured) {
				_ = unstructured.SetNestedField(u.Object, int64(0), "spec", "replicas")
			})
		},
	} {
		c := newCluster(t, ourNamespace())
		c.deploy(t, "postern", 2)
		old := memberOf(t, c, "postern", 1, nil)
		settle(t, c, memberOf(t, c, "postern", 2, slower), old)
		ends(c)
		if err := old.Leave(t.Context(), true); err != nil || len(registeredBy(t, c)) > 0 {
			t.Errorf("%s: registered by %v (%v), want nothing", name, registeredBy(t, c), err)
		}
	}
	// Somebody changes a configuration while the last replica removes it.
	changes := 0
	c.PrependReactor("delete", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		changes++
		return changes == 1, nil, apierrors.NewConflict(a.GetResource().GroupResource(), "postern-pods", nil)
	})
	if err := next.Leave(t.Context(), true); err != nil || len(registeredBy(t, c)) > 0 {
		t.Errorf("Registered by %v (%v), want nothing", registeredBy(t, c), err)
	}
}

// TestFollower has the replicas of a later revision register and end. Somebody deletes what they registered, again and again.
func TestFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, ourNamespace())
		c.deploy(t, "postern", 2)
		old, twin, next := memberOf(t, c, "postern", 1, nil), memberOf(t, c, "postern", 1, nil), memberOf(t, c, "postern", 2, slower)
		registry := measure(old)
		settle(t, c, old, next, old, twin)
		next.bundle.(*bundle).replace("next", "ca")
		settle(t, c, next, old, twin)
		rotated := c.registered(t, mutatingKind, "postern-pods")
		c.deleteAll(t)
		var again time.Duration
		expect := func(what string, metric float64, gone bool) {
			t.Helper()
			var err error
			if again, err = old.sync(t.Context(), c.stores(t, old)); err != nil {
				t.Fatal(err)
			}
			if got := registeredMetrics(t, registry); !maps.Equal(got, map[string]float64{mutatingKind: metric, validatingKind: metric}) || (old.Status() != nil) != gone || (gone || metric == 0) && again != goneTime {
				t.Errorf("%s: got the metrics %v, the status %v and a look after %v", what, got, old.Status(), again)
			}
		}
		old.know(mixed)
		expect("at once", 1, false)
		c.outage(t, old)
		time.Sleep(goneTime)
		expect("after an outage", 1, false)
		time.Sleep(goneTime)
		before := len(c.applies())
		expect("while a process of the later revision runs", 0, true)
		if got := c.applies()[before:]; len(got) > 0 {
			t.Fatalf("Applied %v while a process of the later revision runs", got)
		}
		old.know(func(f *Fleet) { f.running = false })
		expect("when none runs", 0, true)
		for range 3 {
			expect("restored", 1, false)
			if !isRegistrationOf(t, c, next) || bundleOf(c.registered(t, mutatingKind, "postern-pods")) != bundleOf(rotated) {
				t.Errorf("Got %v, want what the later revision had registered", c.registered(t, mutatingKind, "postern-pods"))
			}
			settle(t, c, old, twin)
			time.Sleep(2 * goneTime)
			before := len(c.applies())
			c.deleteAll(t)
			for range 5 {
				expect("deleted again", 1, false)
			}
			if got := c.applies()[before:]; len(got) > 0 {
				t.Errorf("Applied %v at once, want a pause", got)
			}
			time.Sleep(goneTime)
			expect("deleted again", 0, true)
			before = len(c.applies())
			c.deleteAll(t) // Before anybody has seen that it was restored.
			for range 5 {
				if _, err := old.sync(t.Context(), c.stores(t, old)); err != nil {
					t.Fatal(err)
				}
			}
			if got := c.applies()[before:]; len(got) > 0 {
				t.Errorf("Applied %v at once, want a pause", got)
			}
			time.Sleep(goneTime)
			late := c.stores(t, old)
			expect("deleted once more", 0, true)
			before = len(c.applies())
			time.Sleep(goneTime)
			if _, err := old.sync(t.Context(), late); err != nil || len(c.applies()) > before {
				t.Errorf("Applied %v by a cache that is late (%v)", c.applies()[before:], err)
			}
		}
	})
}

// TestClaimIsEqual checks that two equal replicas have one claim, whose form others read.
func TestClaimIsEqual(t *testing.T) {
	c := newCluster(t, ourNamespace())
	c.deploy(t, "postern", 4)
	settle(t, c, memberOf(t, c, "postern", 4, nil), memberOf(t, c, "postern", 4, nil))
	if n := len(c.applies()); n != 2 {
		t.Errorf("Applied %d times, want each of two once: %v", n, c.applies())
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(c.registered(t, mutatingKind, "postern-pods").GetAnnotations()[ClaimAnnotation]), &got); err != nil {
		t.Fatal(err)
	}
	digest, _ := got["digest"].(string)
	if want := map[string]any{"deployment": "postern", "uid": "postern-uid", "revision": 4.0, "digest": digest}; !maps.Equal(got, want) || len(digest) != 16 {
		t.Errorf("Got the claim %v, want %v", got, want)
	}
}

// TestPodOutsideOfADeployment has pods of a ReplicaSet without a Deployment, which still has a revision.
func TestPodOutsideOfADeployment(t *testing.T) {
	c := newCluster(t, ourNamespace())
	first, second := memberOf(t, c, "", 0, nil), memberOf(t, c, "", 0, slower)
	for _, r := range []*Registrar{first, second} {
		r.know(func(f *Fleet) { f.self.Revision = 3 })
	}
	settle(t, c, first, second)
	if !isRegistrationOf(t, c, second) {
		t.Errorf("Registered by %v, want the one that started later", registeredBy(t, c))
	}
}

// TestHighestRival yields to the latest of several revisions.
func TestHighestRival(t *testing.T) {
	c := newCluster(t, ourNamespace())
	c.deploy(t, "postern", 9)
	var configs []*unstructured.Unstructured
	for _, revision := range []int{7, 9, 8} {
		u := other(mutatingKind, "postern-"+strconv.Itoa(revision))
		u.SetAnnotations(map[string]string{ClaimAnnotation: fmt.Sprintf(`{"deployment":"postern","uid":"postern-uid","revision":%d,"digest":"d"}`, revision)})
		configs = append(configs, u)
	}
	r := memberOf(t, c, "postern", 6, nil)
	if v, err := r.fence.look(t.Context(), r.fleet.claim(), configs); err != nil || v.rank != higher || v.rival.Revision != 9 {
		t.Errorf("Got the rival %v (%v), want revision 9", v.rival, err)
	}
}

// TestDeploymentThatCannotBeRead checks that nothing is written while it is not known who registers.
func TestDeploymentThatCannotBeRead(t *testing.T) {
	c := newCluster(t, ourNamespace())
	c.deploy(t, "postern", 2)
	settle(t, c, memberOf(t, c, "postern", 2, slower))
	c.PrependReactor("get", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, context.DeadlineExceeded
	})
	for _, r := range []*Registrar{memberOf(t, c, "postern", 1, nil), memberOf(t, c, "", 0, nil)} {
		_, err := r.sync(t.Context(), c.stores(t, r))
		if prepared := r.Prepare(t.Context()); err == nil || prepared == nil || !strings.HasPrefix(err.Error(), "reading Deployment postern-system/postern: ") || len(c.applies()) != 2 {
			t.Errorf("Got the errors %v and %v, applied %v", err, prepared, c.applies())
		}
	}
}

// TestClaimThatTheCacheLacks is a configuration of a later revision that lost its labels, or comes between the look at the cache and
// the write.
func TestClaimThatTheCacheLacks(t *testing.T) {
	c := newCluster(t, ourNamespace())
	c.deploy(t, "postern", 8)
	older, newer := memberOf(t, c, "postern", 7, nil), memberOf(t, c, "postern", 8, slower)
	late := c.stores(t, older)
	settle(t, c, newer)
	_, err := older.sync(t.Context(), late)
	if want := "MutatingWebhookConfiguration postern-pods was registered by revision 8 of Deployment postern"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Got the error %v, want %q", err, want)
	}
	if !isRegistrationOf(t, c, newer) {
		t.Errorf("Registered by %v, want the later revision", registeredBy(t, c))
	}
}
