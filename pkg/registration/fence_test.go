package registration

import (
	"context"
	"encoding/json"
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
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/postern-dev/postern/pkg/registration/rollout"
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
	r.fleet().set(func(v *rollout.View) {
		if deployment != "" {
			v.Self.Deployment, v.Self.UID, v.Self.Revision = deployment, types.UID(deployment+"-uid"), revision
		}
	})
	return r
}

// forged makes a Lease say that a replica of a higher rank registers, which serves and runs nothing.
func forged(v *rollout.View) {
	v.Leads, v.Leader, v.Higher, v.Living, v.Staying, v.Serves = false, "forged", []string{"forged"}, []string{"forged"}, []string{"forged"}, nil
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
	own := selfOf(r.replicas.View())
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
		lower      bool // by the Leases
		later      bool // a replica of the revision and digest of the claim
		mine       bool
		owner      bool
		want       rank
	}{
		{name: "its own", own: mine, other: mine, lower: true, want: lower},
		{name: "its own of a process", own: process, other: process, lower: true, want: lower},
		{name: "an earlier revision", own: mine, other: claim{"postern", "postern-uid", 3, "e"}, lower: true, want: lower},
		{name: "a later revision", own: mine, other: claim{"postern", "postern-uid", 5, "d"}, want: higher},
		{name: "a revision that does not exist", own: mine, other: claim{"postern", "postern-uid", 6, "e"}, lower: true, want: lower},
		{name: "a later revision, unreadable", own: mine, other: claim{"postern", "postern-uid", 999, "e"}, do: forbid, want: higher},
		{name: "a later revision, deleted", own: mine, other: claim{"postern", "postern-uid", 5, "e"}, do: func(c *cluster) { c.undeploy(t, "postern") }, want: higher},
		{name: "another digest", own: mine, other: claim{"postern", "postern-uid", 4, "e"}, lower: true, want: lower},
		{name: "another digest of a later start", own: mine, other: claim{"postern", "postern-uid", 4, "e"}, later: true, want: higher},
		{name: "a process", own: mine, other: claim{Digest: "e"}, lower: true, want: lower},
		{name: "a process, if it may not read Deployments", own: mine, other: claim{Digest: "e"}, do: forbid, lower: true, want: lower},
		{name: "a process, to an orphan", own: claim{"gone", "gone-uid", 4, "d"}, other: claim{Digest: "e"}, want: lower},
		{name: "a process of a later start, to an orphan", own: claim{"gone", "gone-uid", 4, "d"}, other: claim{Digest: "e"}, lower: true, want: higher},
		{name: "another process", own: process, other: claim{Digest: "e"}, lower: true, want: lower},
		{name: "another process of a later start", own: process, other: claim{Digest: "e"}, later: true, want: higher},
		{name: "a Deployment, to a process", own: process, other: mine, want: foreign},
		{name: "a Deployment that does not exist, to a process", own: process, other: claim{"gone", "gone-uid", 1, "d"}, lower: true, want: lower},
		{name: "a Deployment made again, to a process", own: process, other: claim{"postern", "former-uid", 4, "d"}, lower: true, want: lower},
		{name: "an unreadable Deployment, to a process", own: process, other: mine, do: forbid, want: lower},
		{name: "an unreadable Deployment of a leader, to a process", own: process, other: mine, do: forbid, lower: true, want: higher},
		{name: "another Deployment", own: mine, other: claim{"second", "second-uid", 1, "d"}, want: foreign},
		{name: "another Deployment that does not exist", own: mine, other: claim{"gone", "gone-uid", 9, "d"}, lower: true, want: lower},
		{name: "itself made again", own: mine, other: claim{"postern", "former-uid", 9, "d"}, lower: true, want: lower},
		{name: "another Deployment, of an orphan", own: claim{"gone", "gone-uid", 4, "d"}, other: claim{"second", "second-uid", 1, "d"}, want: higher},
		{name: "its successor", own: mine, other: claim{"second", "second-uid", 1, "d"}, do: func(c *cluster) { c.deploy(t, "second", 1, ReplacesAnnotation, "postern") }, want: higher},
		{name: "its predecessor", own: mine, other: claim{"second", "second-uid", 1, "d"}, do: func(c *cluster) { c.deploy(t, "postern", 5, ReplacesAnnotation, "second") }, lower: true, want: lower},
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
			view := rollout.View{Self: rollout.Identity(tt.own), Leads: !tt.lower, Later: []string{"x"}}
			if tt.later {
				view.Later = append(view.Later, tt.other.Digest)
			}
			got, err := f.rank(t.Context(), view, tt.other, tt.mine, tt.owner)
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
		r.fleet().set(func(v *rollout.View) { v.Self.Revision = 3 })
	}
	c.deploy(t, "postern", 3)
	settle(t, c, next, old, restarted)
	if !isRegistrationOf(t, c, old) {
		t.Errorf("Registered by %v, want the revision that the rollback returned to", registeredBy(t, c))
	}
}

// TestForgeries checks that neither a Lease nor a claim of a replica that does not exist keeps anybody from registering.
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
			r.fleet().set(func(v *rollout.View) { forged(v); v.Serves = []string{"/pods"} })
			if r.replicas.View().Self.UID != "" {
				c.deleteAll(t) // Of processes, one that lacks a service may have removed it.
			}
			settle(t, c, r)
			if !isRegistrationOf(t, c, r) || r.Status() != nil {
				t.Errorf("Registered by %v with the status %v, want a repair in spite of the Lease", registeredBy(t, c), r.Status())
			}
			for _, text := range []string{
				`{"deployment":"postern","uid":"postern-uid","revision":999,"digest":"x"}`, `{"deployment":"none","uid":"x","revision":1}`, `{"deployment":"none","revision":9}`, `{"revision":9}`, `{"digest":"x"}`, `x`,
				`{"deployment":"postern","uid":"postern-uid","revision":4,"digest":"x"}`, `{"deployment":"second","uid":"second-uid","revision":1,"digest":"x"}`, none,
			} {
				if r.replicas.View().Self.UID == "" && (text == none || strings.Contains(text, "postern-uid") || strings.Contains(text, "second-uid")) {
					continue // The Deployment lives. Without a claim, only the Leases tell processes apart.
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

// TestNewestRegistersWithoutLeases is the first registration, while a Lease of a replica that does not exist says that it
// registers. What has no claim was registered by a version that heeds the Leases, so the Leases decide.
func TestNewestRegistersWithoutLeases(t *testing.T) {
	for _, tt := range []struct {
		revision int64
		found    bool // what is registered has no claim
		want     bool
	}{{4, false, true}, {3, false, false}, {4, true, false}, {3, true, false}} {
		c := newCluster(t, ourNamespace())
		c.deploy(t, "postern", 4)
		if tt.found {
			mustSync(t, memberOf(t, c, "", 0, nil), c)
			c.edit(t, func(u *unstructured.Unstructured) { u.SetAnnotations(nil) })
		}
		r := memberOf(t, c, "postern", tt.revision, nil)
		r.fleet().set(func(v *rollout.View) { forged(v); v.Serves = []string{"/pods"} })
		settle(t, c, r)
		if got := isRegistrationOf(t, c, r); got != tt.want {
			t.Errorf("%+v: registered: %t", tt, got)
		}
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
			if got := other.fleet().calls; len(got) > 0 || len(deletions(c)) > 0 {
				t.Errorf("Got the announcements %v of a replica that is kept out, deleted %v", got, deletions(c))
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
			again, err := other.sync(t.Context(), c.stores(t, other))
			if !isRegistrationOf(t, c, first) || err != nil || again != rivalInterval || other.Status() == nil || other.Status().Error() != tt.want || (other.KeptOut() != nil) != (tt.deployment != "") {
				t.Errorf("Registered by %v, got the status %v, looks again after %v (%v)", registeredBy(t, c), other.Status(), again, err)
			}
			if got := registeredMetrics(t, registry); !maps.Equal(got, map[string]float64{mutatingKind: 0, validatingKind: 0}) {
				t.Errorf("Got the metrics %v, want 0", got)
			}
			if bundleOf(c.registered(t, mutatingKind, "postern-pods")) != bundleOf(mustDesire(t, first)) {
				t.Error("The CA of the replica that is kept out is registered")
			}
			c.undeploy(t, "postern")
			if err := other.Prepare(t.Context()); err != nil {
				t.Error(err)
			}
			first.fleet().set(yields) // It is an orphan now.
			settle(t, c, first, other)
			defer func() {
				if err := other.Leave(t.Context(), false); err != nil || !slices.Contains(other.fleet().calls, "leave") {
					t.Errorf("Got the announcements %v (%v), want that it leaves", other.fleet().calls, err)
				}
			}()
			own := selfOf(other.replicas.View())
			if got := registeredBy(t, c); !maps.Equal(got, map[string]claim{mutatingKind: own, validatingKind: own}) || other.KeptOut() != nil {
				t.Errorf("Registered by %v, want what is left", got)
			}
		})
	}
}

func mustDesire(t *testing.T, r *Registrar) *unstructured.Unstructured {
	t.Helper()
	all, err := r.desired(nil, selfOf(r.replicas.View()))
	if err != nil {
		t.Fatal(err)
	}
	return all[configKey{mutatingKind, "postern-pods"}]
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
	u, err := second.desired(nil, selfOf(second.replicas.View()))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Tracker().Update(resources()[validatingKind], u[configKey{validatingKind, "postern-pods"}], ""); err != nil {
		t.Fatal(err)
	}
	settle(t, c, second, first)
	if !isRegistrationOf(t, c, first) || second.Status() == nil {
		t.Errorf("Registered by %v, got the status %v", registeredBy(t, c), second.Status())
	}
}

// TestConfigMapChanges has two replicas of one revision of which the later one has another configuration.
func TestConfigMapChanges(t *testing.T) {
	c := newCluster(t, ourNamespace())
	c.deploy(t, "postern", 4)
	first := memberOf(t, c, "postern", 4, nil)
	var told []string
	first.Notify = func(_, reason, message string) { told = append(told, reason+" "+message) }
	settle(t, c, first)
	told = nil
	later := memberOf(t, c, "postern", 4, slower)
	if err := later.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	first.fleet().set(yieldsTo(later))
	settle(t, c, first, later)
	if !isRegistrationOf(t, c, later) || first.Status() != nil {
		t.Errorf("Registered by %v, want the later replica", registeredBy(t, c))
	}
	want := []string{"ConfigurationDiffers Replicas of revision 4 register different webhooks, and those that started last prevail. " +
		"Restart all replicas, so that they have the same configuration: kubectl -n postern-system rollout restart deployment/postern"}
	if !slices.Equal(told, want) {
		t.Errorf("Told %q, want %q", told, want)
	}
	// The later replica is gone for good.
	first.fleet().set(alone)
	settle(t, c, first)
	if !isRegistrationOf(t, c, first) {
		t.Errorf("Registered by %v, want the replica that is left", registeredBy(t, c))
	}
}

// TestRemovedByALaterRevision has a later revision that removes a service and registers nothing. Its replicas answer the path.
func TestRemovedByALaterRevision(t *testing.T) {
	for name, r := range map[string]func(*cluster) *Registrar{
		"a Deployment": func(c *cluster) *Registrar { return memberOf(t, c, "postern", 1, nil) },
		"a process":    func(c *cluster) *Registrar { return memberOf(t, c, "", 0, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, ourNamespace())
			c.deploy(t, "postern", 2)
			old := r(c)
			settle(t, c, old)
			// It has joined, but the API server cannot call it yet. What is deleted is restored.
			old.fleet().set(func(v *rollout.View) { v.Higher, v.Living = []string{"other"}, []string{"other"} })
			c.deleteAll(t)
			settle(t, c, old)
			if !isRegistrationOf(t, c, old) {
				t.Fatalf("Registered by %v, want what somebody deleted", registeredBy(t, c))
			}
			old.fleet().set(yields)
			for _, kind := range []string{validatingKind, mutatingKind} {
				if err := c.Tracker().Delete(resources()[kind], "", "postern-pods"); err != nil {
					t.Fatal(err)
				}
				settle(t, c, old)
				if c.registered(t, kind, "postern-pods") != nil {
					t.Errorf("The removed %s is there again", kind)
				}
				want := "service /pods is not added while replica other registers, which has a higher rank"
				if kind == mutatingKind {
					want = "nothing is registered, which is left to replica other"
				}
				if err := old.Status(); err == nil || err.Error() != want {
					t.Errorf("Got the status %v, want the service that waits", err)
				}
			}
			old.fleet().set(alone) // The later revision was a failure.
			settle(t, c, old)
			if !isRegistrationOf(t, c, old) || old.Status() != nil {
				t.Errorf("Registered by %v with the status %v, want what was removed", registeredBy(t, c), old.Status())
			}
		})
	}
}

// TestRestartInARollout has an old replica start again after a later revision has registered what it does not serve.
func TestRestartInARollout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, ourNamespace())
		c.deploy(t, "postern", 2)
		next := memberOf(t, c, "postern", 2, func(_ *Deployment, s *router.AdmissionService) { s.Path = "/added" })
		next.fleet().set(func(v *rollout.View) { v.Serves = []string{"/added"} })
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
		old.fleet().set(func(v *rollout.View) { v.Self.Revision = 3 })
		if err := old.Prepare(t.Context()); err != nil {
			t.Error(err)
		}
		if got := deletions(c); len(got) != 2 {
			t.Errorf("Deleted %v, want what the replicas do not serve", got)
		}
	})
}

// TestRestartOfAnEarlierConfiguration has a replica start again of which only the Leases tell that others of its revision have
// started later.
func TestRestartOfAnEarlierConfiguration(t *testing.T) {
	c := newCluster(t, ourNamespace())
	c.deploy(t, "postern", 2)
	later := memberOf(t, c, "postern", 2, func(_ *Deployment, s *router.AdmissionService) { s.Path = "/added" })
	later.fleet().set(func(v *rollout.View) { v.Serves = []string{"/added"}; v.Self.Digest = "later" })
	settle(t, c, later)
	first := memberOf(t, c, "postern", 2, nil)
	first.replicas = &lateFleet{first.fleet(), yieldsTo(later)}
	if err := first.Prepare(t.Context()); err == nil || len(deletions(c)) > 0 {
		t.Errorf("Deleted %v (%v), want nothing of the later replica", deletions(c), err)
	}
}

// lateFleet knows the Leases of the others when it has joined, as a rollout.Replicas.
type lateFleet struct {
	*fleet

	known func(*rollout.View)
}

func (f *lateFleet) Join(ctx context.Context) error {
	f.set(f.known)
	return f.fleet.Join(ctx)
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

// TestLeaveByTheFence has the last replica of an earlier revision leave, of which the Leases say that it is the last one.
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
		old.fleet().set(yields)
		expect("at once", 1, false)
		time.Sleep(goneTime)
		before := len(c.applies())
		expect("while a replica of the later revision lives", 0, true)
		if got := c.applies()[before:]; len(got) > 0 {
			t.Fatalf("Applied %v while a replica of the later revision lives", got)
		}
		old.fleet().set(alone)
		expect("when none lives", 0, true)
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
		r.fleet().set(func(v *rollout.View) { v.Self.Revision = 3 })
	}
	first.fleet().set(yieldsTo(second))
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
	if v, err := r.fence.look(t.Context(), r.replicas.View(), configs); err != nil || v.rank != higher || v.rival.Revision != 9 {
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
