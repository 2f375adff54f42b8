package registration

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"github.com/postern-dev/postern/pkg/router"
)

// onlyMutating and onlyValidating leave one half of the service.
func onlyMutating(_ *Deployment, s *router.AdmissionService) {
	s.ValidatingConfig, s.Validate = nil, nil
}

func onlyValidating(_ *Deployment, s *router.AdmissionService) { s.MutatingConfig, s.Mutate = nil, nil }

// removeAs deletes a configuration with the mark of a replica, which the replicas see.
func (c *cluster) removeAs(t *testing.T, kind string, by claim, replicas ...*Registrar) {
	t.Helper()
	text, err := by.text()
	if err != nil {
		t.Fatal(err)
	}
	c.editOne(t, kind, func(u *unstructured.Unstructured) {
		u.SetAnnotations(map[string]string{ClaimAnnotation: u.GetAnnotations()[ClaimAnnotation], RemovedAnnotation: text})
	})
	marked := c.registered(t, kind, "postern-pods")
	if err := c.Tracker().Delete(resources()[kind], "", "postern-pods"); err != nil {
		t.Fatal(err)
	}
	for _, r := range replicas {
		r.noticeRemoval(marked)
	}
}

// TestMutatingHalfIsAddedToAService is a rollout that adds the first plugin with a mutating half to a family. The old replicas
// serve its path, and until the mutating half is registered too, the new ones deny what it would have changed.
func TestMutatingHalfIsAddedToAService(t *testing.T) {
	c := newCluster(t, ourNamespace())
	mustSync(t, newRegistrar(t, c, onlyValidating), c)
	next := newRegistrar(t, c, nil)
	next.know(mixed)
	mustSync(t, next, c)
	if !c.isRegistered(t, next) || next.Status() != nil {
		t.Fatalf("Applied %v with the status %v, want both halves", c.applies(), next.Status())
	}
	if got, want := c.applies(), []string{"validatingwebhookconfigurations/postern-pods", "mutatingwebhookconfigurations/postern-pods", "validatingwebhookconfigurations/postern-pods"}; !slices.Equal(got, want) {
		t.Errorf("Applied %v, want the mutating half first: %v", got, want)
	}
	// A later replica without it removes the mutating half.
	c.removeAs(t, mutatingKind, claim{"postern", "u", 9, "e"}, next)
	mustSync(t, next, c)
	if c.registered(t, mutatingKind, "postern-pods") != nil || next.Status() == nil {
		t.Errorf("The mutating half is there again, with the status %v", next.Status())
	}
}

// TestValidatingHalfIsAddedToAService is the reverse. A validating half that is late denies nothing, so it waits.
func TestValidatingHalfIsAddedToAService(t *testing.T) {
	c := newCluster(t, ourNamespace())
	mustSync(t, newRegistrar(t, c, onlyMutating), c)
	next := newRegistrar(t, c, nil)
	next.know(mixed)
	mustSync(t, next, c)
	if c.registered(t, validatingKind, "postern-pods") != nil || next.Status() == nil {
		t.Errorf("Applied %v with the status %v, want a validating half that waits", c.applies(), next.Status())
	}
}

// TestOtherHalfIsBeingRemoved has somebody delete one half while a later replica removes the other. To repair it would lead users
// to replicas that do not serve it.
func TestOtherHalfIsBeingRemoved(t *testing.T) {
	for _, kind := range []string{mutatingKind, validatingKind} {
		t.Run(kind, func(t *testing.T) {
			c := newCluster(t, ourNamespace())
			c.deploy(t, "postern", 2)
			r := memberOf(t, c, "postern", 1, nil)
			mustSync(t, r, c)
			r.know(mixed)
			c.removeAs(t, kind, claim{"postern", "postern-uid", 2, "e"}, r)
			deleted := map[string]string{mutatingKind: validatingKind, validatingKind: mutatingKind}[kind]
			if err := c.Tracker().Delete(resources()[deleted], "", "postern-pods"); err != nil {
				t.Fatal(err)
			}
			mustSync(t, r, c)
			if got := registeredBy(t, c); len(got) > 0 || r.Status() == nil {
				t.Errorf("Registered %v with the status %v, want nothing", got, r.Status())
			}
			r.know(alone)
			mustSync(t, r, c)
			if !c.isRegistered(t, r) || r.Status() != nil {
				t.Errorf("Registered by %v with the status %v, want both halves once no other version runs", registeredBy(t, c), r.Status())
			}
		})
	}
}

// TestDeletionThatTheWatchHasNotTold has a configuration vanish that the cache still has, and that somebody has edited before.
func TestDeletionThatTheWatchHasNotTold(t *testing.T) {
	c := newCluster(t, ourNamespace())
	r := newRegistrar(t, c, nil)
	mustSync(t, r, c)
	c.editOne(t, validatingKind, func(u *unstructured.Unstructured) {
		u.SetResourceVersion("2")
		webhookField([]any{}, "rules")(u)
	})
	late := c.stores(t, r)
	c.conflictIfGone(t)
	if err := c.Tracker().Delete(resources()[validatingKind], "", "postern-pods"); err != nil {
		t.Fatal(err)
	}
	r.know(mixed)
	if again, err := r.sync(t.Context(), late); err != nil || again != lookInterval || r.Status() == nil || c.registered(t, validatingKind, "postern-pods") != nil {
		t.Errorf("Registered %v with the status %v and a sync after %v (%v), want to wait for the watch", registeredBy(t, c), r.Status(), again, err)
	}
	mustSync(t, r, c)
	if !c.isRegistered(t, r) || r.Status() != nil {
		t.Errorf("Got the status %v, want it repaired", r.Status())
	}
	if err := c.Tracker().Delete(resources()[validatingKind], "", "postern-pods"); err != nil {
		t.Fatal(err)
	}
	r.know(alone)
	if _, err := r.sync(t.Context(), late); err != nil || r.Status() != nil || !c.isRegistered(t, r) {
		t.Errorf("Got the status %v (%v), want it repaired at once", r.Status(), err)
	}
}

// TestMarkOfItsOwn has somebody delete the configurations with a mark that a replica would make. It never removes what it serves.
func TestMarkOfItsOwn(t *testing.T) {
	c := newCluster(t, ourNamespace())
	c.deploy(t, "postern", 1)
	r := memberOf(t, c, "postern", 1, nil)
	mustSync(t, r, c)
	r.know(mixed)
	for kind := range resources() {
		c.removeAs(t, kind, r.fleet.claim(), r)
	}
	mustSync(t, r, c)
	if !c.isRegistered(t, r) || r.Status() != nil {
		t.Errorf("Got the status %v, want both halves", r.Status())
	}
}

// TestWhatWasRegisteredIsRepaired has somebody delete everything in a rollout, after a replica has written it and never seen it, or
// seen and never written it.
func TestWhatWasRegisteredIsRepaired(t *testing.T) {
	for name, first := range map[string]func(c *cluster) *Registrar{
		"written": func(c *cluster) *Registrar {
			r := newRegistrar(t, c, nil)
			mustSync(t, r, c)
			return r
		},
		"seen": func(c *cluster) *Registrar {
			mustSync(t, newRegistrar(t, c, nil), c)
			r := newRegistrar(t, c, nil)
			mustSync(t, r, c)
			return r
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, ourNamespace())
			r := first(c)
			c.deleteAll(t)
			r.know(mixed)
			mustSync(t, r, c)
			if !c.isRegistered(t, r) || r.Status() != nil {
				t.Errorf("Got the status %v, want both halves", r.Status())
			}
		})
	}
}

// TestRemovalsOfAPeerThatIsGone has a peer with one half of a service remove the other, and end. Somebody deletes what it has registered.
func TestRemovalsOfAPeerThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, ourNamespace())
		c.deploy(t, "postern", 1)
		r, peer := memberOf(t, c, "postern", 1, nil), memberOf(t, c, "postern", 1, onlyValidating)
		r.know(alone)
		peer.know(alone)
		settle(t, c, r)
		mustSync(t, peer, c)
		c.tell(r)
		settle(t, c, r, peer)
		if got := registeredBy(t, c); len(got) != 1 || got[validatingKind] != peer.fleet.claim() {
			t.Fatalf("Registered by %v, want the validating half of the peer", got)
		}
		if err := c.Tracker().Delete(resources()[validatingKind], "", "postern-pods"); err != nil {
			t.Fatal(err)
		}
		mustSync(t, r, c)
		time.Sleep(goneTime)
		settle(t, c, r)
		if !isRegistrationOf(t, c, r) || r.Status() != nil {
			t.Errorf("Registered by %v with the status %v, want both halves of the one that is left", registeredBy(t, c), r.Status())
		}
	})
}

// TestLateCacheRemovesNothing has a later revision take one half over, which the cache of a replica does not know yet. The other half,
// which the later one has not written yet, is one that this replica lacks.
func TestLateCacheRemovesNothing(t *testing.T) {
	c := newCluster(t, ourNamespace())
	c.deploy(t, "postern", 3)
	mustSync(t, memberOf(t, c, "postern", 1, nil), c)
	r, next := memberOf(t, c, "postern", 2, onlyValidating), memberOf(t, c, "postern", 3, slower)
	late := c.stores(t, r)
	c.takeHalf(t, next, validatingKind)
	fails := true
	c.PrependReactor("patch", "validatingwebhookconfigurations", func(clienttesting.Action) (bool, runtime.Object, error) {
		return fails, nil, apierrors.NewConflict(schema.GroupResource{}, "postern-pods", errors.New("it has changed"))
	})
	r.failures = maxTries
	if _, err := r.sync(t.Context(), late); err == nil || c.registered(t, mutatingKind, "postern-pods") == nil {
		t.Errorf("Got the error %v and the claims %v, want an error and both halves", err, registeredBy(t, c))
	}
	fails = false
	settle(t, c, r, next)
	if !isRegistrationOf(t, c, next) {
		t.Errorf("Registered by %v, want the later revision", registeredBy(t, c))
	}
}

// TestRemovalByAPeerThatYields has two replicas of one revision start at the same moment. One removes a half of the other, and then
// yields.
func TestRemovalByAPeerThatYields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, ourNamespace())
		c.deploy(t, "postern", 1)
		r, peer := memberOf(t, c, "postern", 1, nil), memberOf(t, c, "postern", 1, onlyValidating)
		mustSync(t, r, c)
		c.removeAs(t, mutatingKind, peer.fleet.claim(), r)
		time.Sleep(removalTime - time.Second)
		if mustSync(t, r, c); c.registered(t, mutatingKind, "postern-pods") != nil || r.Status() == nil {
			t.Errorf("Registered by %v with the status %v, want time for the peer", registeredBy(t, c), r.Status())
		}
		time.Sleep(time.Second)
		if settle(t, c, r); !isRegistrationOf(t, c, r) || r.Status() != nil {
			t.Errorf("Registered by %v with the status %v, want both halves of the one that prevails", registeredBy(t, c), r.Status())
		}
	})
}

// TestMarkOfAReplicaThatHasEnded has a replica end after it has marked a configuration, which somebody deletes later.
func TestMarkOfAReplicaThatHasEnded(t *testing.T) {
	c := newCluster(t, ourNamespace())
	c.deploy(t, "postern", 2)
	r := memberOf(t, c, "postern", 1, nil)
	mustSync(t, r, c)
	c.editOne(t, validatingKind, func(u *unstructured.Unstructured) {
		u.SetAnnotations(map[string]string{ClaimAnnotation: u.GetAnnotations()[ClaimAnnotation], RemovedAnnotation: `{"deployment":"postern","uid":"postern-uid","revision":2,"digest":"e"}`})
	})
	mustSync(t, r, c)
	if _, marked := c.registered(t, validatingKind, "postern-pods").GetAnnotations()[RemovedAnnotation]; marked || !c.isRegistered(t, r) {
		t.Errorf("Got the annotations %v, want no mark", c.registered(t, validatingKind, "postern-pods").GetAnnotations())
	}
}

// TestFollowerOfAnUninstall undoes an uninstall after the later revision that has registered is gone.
func TestFollowerOfAnUninstall(t *testing.T) {
	c := newCluster(t, ourNamespace())
	c.deploy(t, "postern", 2)
	old := memberOf(t, c, "postern", 1, nil)
	old.know(mixed)
	settle(t, c, memberOf(t, c, "postern", 2, slower), old)
	if _, err := Uninstall(t.Context(), c, old.deployment, ""); err != nil {
		t.Fatal(err)
	}
	mustSync(t, old, c)
	if err := c.Tracker().Update(namespaces, ourNamespace(), ""); err != nil {
		t.Fatal(err)
	}
	old.know(alone)
	settle(t, c, old)
	if !isRegistrationOf(t, c, old) || old.Status() != nil {
		t.Errorf("Registered by %v with the status %v, want the replica that is left", registeredBy(t, c), old.Status())
	}
}

// TestFollowerOfARemoval has a later revision remove one half and end. A follower does not miss it.
func TestFollowerOfARemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, ourNamespace())
		c.deploy(t, "postern", 2)
		old, next := memberOf(t, c, "postern", 1, nil), memberOf(t, c, "postern", 2, nil)
		old.know(alone)
		settle(t, c, next, old)
		c.removeAs(t, mutatingKind, claim{"postern", "postern-uid", 2, "e"}, old)
		mustSync(t, old, c)
		time.Sleep(2 * goneTime)
		mustSync(t, old, c)
		if got := registeredBy(t, c); len(got) != 1 || old.Status() != nil {
			t.Errorf("Registered %v with the status %v, want the validating half alone", got, old.Status())
		}
	})
}

// TestPredecessorRestoresNothing has a Deployment follow the one that takes its place, which is left to itself.
func TestPredecessorRestoresNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, ourNamespace())
		c.deploy(t, "postern", 1)
		c.deploy(t, "successor", 1, ReplacesAnnotation, "postern")
		old, next := memberOf(t, c, "postern", 1, nil), memberOf(t, c, "successor", 1, nil)
		old.know(alone)
		settle(t, c, old)
		settle(t, c, next, old)
		c.deleteAll(t)
		mustSync(t, old, c)
		time.Sleep(2 * goneTime)
		mustSync(t, old, c)
		if got := registeredBy(t, c); len(got) > 0 || old.Status() == nil {
			t.Errorf("Registered %v with the status %v, want that it says what is missing", got, old.Status())
		}
	})
}
