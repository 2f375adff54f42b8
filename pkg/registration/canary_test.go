package registration

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"github.com/postern-dev/postern/internal/segment"
	"github.com/postern-dev/postern/pkg/router"
)

// denied is how the API server passes on that a webhook denied a request.
func denied(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: message}}
}

// answering makes the API server answer the canary requests. The func gets the name of the webhook and the Lease, and returns
// the answer, or nil for what a dry run returns.
func (c *cluster) answering(t *testing.T, answer func(webhook string, lease *unstructured.Unstructured) error) (asked *int) {
	t.Helper()
	asked = new(int)
	c.PrependReactor("create", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
		*asked++
		create := action.(clienttesting.CreateActionImpl)
		lease := create.GetObject().(*unstructured.Unstructured)
		config := c.registered(t, validatingKind, canaryName)
		checkCanary(t, config, create, lease)
		w := asMap(webhookList(config.Object)[len(webhookList(config.Object))-1])
		return true, lease, answer(w["name"].(string), lease)
	})
	c.PrependReactor("patch", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if patch, ok := action.(clienttesting.PatchActionImpl); ok && patch.GetName() == canaryName && !strings.HasPrefix(patch.GetPatchOptions().FieldManager, "postern-canary-") {
			t.Errorf("Got the field manager %q, want one for each replica", patch.GetPatchOptions().FieldManager)
		}
		return false, nil, nil
	})
	return asked
}

func called(_ string, lease *unstructured.Unstructured) error {
	return denied(router.CanaryAnswer(lease.GetName()))
}

func noRoute(webhook string, _ *unstructured.Unstructured) error {
	return apierrors.NewInternalError(errors.New(`failed calling webhook "` + webhook + `": failed to call webhook: dial tcp 10.0.0.1:443: i/o timeout`))
}

// canaryService is the Service by which the API server calls a replica that is not ready.
func canaryService() *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Service"}}
	u.SetName("postern-canary")
	u.SetNamespace("postern-system")
	return u
}

// podWith returns the pod of this replica with labels.
func podWith(labels ...string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod"}}
	u.SetName("us")
	u.SetNamespace("postern-system")
	all := map[string]string{}
	for i := 0; i+1 < len(labels); i += 2 {
		all[labels[i]] = labels[i+1]
	}
	u.SetLabels(all)
	return u
}

// TestCanary is about the answers that an API server can give to the canary request.
func TestCanary(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer func(webhook string, lease *unstructured.Unstructured) error
		want   string
		// skipped is a part of the reason for which nothing is known.
		skipped string
	}{
		{"Postern was called", called, "", ""},
		{"somebody else answers", func(webhook string, _ *unstructured.Unstructured) error {
			return denied(`admission webhook "` + webhook + `" denied the request: ` + router.CanaryAnswer("x"))
		}, "the API server has not reached this replica by Service postern-canary", ""},
		{"no route", noRoute, "the API server has not reached this replica by Service postern-canary", ""},
		{"not observed yet", func(string, *unstructured.Unstructured) error { return nil }, "has not observed the canary webhook yet", ""},
		{"a webhook of somebody else", func(string, *unstructured.Unstructured) error {
			return denied(`admission webhook "other.example.com" denied the request: no`)
		}, "", "other.example.com"},
		{"a policy of somebody else", func(string, *unstructured.Unstructured) error {
			return &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Message: "ValidatingAdmissionPolicy 'x' denied request"}}
		}, "", "ValidatingAdmissionPolicy 'x'"},
		{"somebody removes the label", func(_ string, lease *unstructured.Unstructured) error {
			lease.SetLabels(nil)
			return nil
		}, "", "somebody removes the label"},
		{"no permission", func(string, *unstructured.Unstructured) error {
			return denied(`leases.coordination.k8s.io is forbidden: User "x" cannot create resource "leases"`)
		}, "", "cannot create resource"},
		{"a webhook of somebody else does not answer", func(string, *unstructured.Unstructured) error {
			return apierrors.NewInternalError(errors.New(`failed calling webhook "other.example.com"`))
		}, "asking the API server to call this replica", ""},
		{"conflict", func(string, *unstructured.Unstructured) error {
			return apierrors.NewConflict(leases.GroupResource(), "x", nil)
		}, "asking the API server to call this replica", ""},
		{"no namespace", func(string, *unstructured.Unstructured) error {
			return apierrors.NewNotFound(namespaces.GroupResource(), "x")
		}, "asking the API server to call this replica", ""},
		{"not authenticated", func(string, *unstructured.Unstructured) error { return apierrors.NewUnauthorized("who") }, "asking the API server to call this replica", ""},
		{"busy", func(string, *unstructured.Unstructured) error { return apierrors.NewTooManyRequests("busy", 1) }, "asking the API server to call this replica", ""},
		{"no API server", func(string, *unstructured.Unstructured) error { return errors.New("connection refused") }, "asking the API server to call this replica", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, ourNamespace(), canaryService())
				r := newRegistrar(t, c, nil)
				skipped := countSkipped(t, r)
				asked := c.answering(t, tt.answer)
				err := r.Called(t.Context())
				if tt.skipped != "" {
					if err == nil || !strings.Contains(err.Error(), tt.skipped) || skipped() != 0 || *asked != 1 {
						t.Errorf("At first: got %v, asked %d times and skipped %v, want to try again", err, *asked, skipped())
					}
					time.Sleep(refusedTime)
					*asked = 0
					err = r.Called(t.Context())
				}
				if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
					t.Errorf("Got the error %v, want one with %q", err, tt.want)
				}
				if again := errors.Is(err, errNotObserved); *asked > 1 != again {
					t.Errorf("Asked %d times, want to ask again only while the webhook is not observed", *asked)
				}
				isCalled := tt.want == "" && tt.skipped == ""
				if left := c.registered(t, validatingKind, canaryName); (left == nil) != (tt.want == "") {
					t.Errorf("Got the canary %v, want it removed unless it is called again", left)
				}
				if r.canary.called != isCalled {
					t.Errorf("Got called: %v, want %v", r.canary.called, isCalled)
				}
				if got := r.canary.logged; (got == "") != (tt.skipped == "") || !strings.Contains(got, tt.skipped) {
					t.Errorf("Got skipped with %q, want %q", got, tt.skipped)
				}
				if got := skipped(); (got == 1) != (tt.skipped != "") {
					t.Errorf("Got postern_canary_skipped %v for %q", got, tt.skipped)
				}
			})
		})
	}
}

// countSkipped gives a registrar metrics, and returns a func that reads postern_canary_skipped.
func countSkipped(t *testing.T, r *Registrar) func() float64 {
	t.Helper()
	registry := measure(r)
	return func() float64 {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "postern_canary_skipped" {
				return f.GetMetric()[0].GetGauge().GetValue()
			}
		}
		t.Fatal("Got no metric postern_canary_skipped")
		return 0
	}
}

// TestCanaryHidesTheSegment checks that the error of a call that failed does not have the secret path.
func TestCanaryHidesTheSegment(t *testing.T) {
	c := newCluster(t, ourNamespace(), canaryService())
	r := newRegistrar(t, c, nil)
	key := []byte("key")
	r.bundle.(*bundle).keys = [][]byte{key}
	secret := segment.Of(key)
	c.answering(t, func(webhook string, _ *unstructured.Unstructured) error {
		w := asMap(webhookList(c.registered(t, validatingKind, canaryName).Object)[0])
		if !strings.Contains(calledPath(w), secret) {
			t.Errorf("Got the path %s, want it to have the segment", calledPath(w))
		}
		return apierrors.NewInternalError(fmt.Errorf("failed calling webhook %q: failed to call webhook: Post %q: dial tcp: i/o timeout", webhook, "https://postern-canary.postern-system.svc:443"+calledPath(w)+"?timeout=1s"))
	})
	err := r.Called(t.Context())
	if err == nil || strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "ournonce") || !strings.Contains(err.Error(), ":443/…/validate?timeout=1s") {
		t.Errorf("Got %v, want the error of the call without the segment", err)
	}
}

// TestCanaryAsksOnce checks that nothing is asked once the API server has called this replica, and that what was skipped before
// counts as skipped until then.
func TestCanaryAsksOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, ourNamespace(), canaryService())
		r := newRegistrar(t, c, nil)
		skipped := countSkipped(t, r)
		policy := true
		asked := c.answering(t, func(webhook string, lease *unstructured.Unstructured) error {
			if policy {
				return denied("no")
			}
			return called(webhook, lease)
		})
		for i, want := range []struct {
			fails   bool
			asked   int
			skipped float64
		}{{true, 1, 0}, {false, 2, 1}, {false, 3, 1}, {false, 4, 0}, {false, 4, 0}} {
			policy = i < 3
			if err := r.Called(t.Context()); (err != nil) != want.fails {
				t.Errorf("Attempt %d: got %v", i, err)
			}
			if got := skipped(); *asked != want.asked || got != want.skipped {
				t.Errorf("Attempt %d: asked %d times and got %v, want %+v", i, *asked, got, want)
			}
			time.Sleep(refusedTime)
		}
	})
}

// TestCanaryWithoutAService checks that a replica that is ready is called by the Service of the webhooks if there is none for
// canaries, and that one that is not ready goes on.
func TestCanaryWithoutAService(t *testing.T) {
	forbidden := func(c *cluster) {
		c.PrependReactor("get", "services", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, denied("services is forbidden")
		})
	}
	selecting := canaryService()
	selecting.Object["spec"] = map[string]any{"selector": map[string]any{"app": "postern", "canary": "true"}}
	for _, tt := range []struct {
		name    string
		objects []runtime.Object
		change  func(*cluster)
		invalid string
		// transient is true if the reason may be gone in a moment.
		transient bool
		want      string
	}{
		{"none", nil, func(*cluster) {}, "", false, `"postern-canary" not found`},
		{"it selects others", []runtime.Object{selecting, podWith("app", "postern")}, func(*cluster) {}, "", false, "pod us lacks the labels that Service postern-canary selects, app=postern,canary=true"},
		{"it must not be read", []runtime.Object{canaryService()}, forbidden, "", true, "services is forbidden"},
		{"another certificate", []runtime.Object{canaryService()}, func(*cluster) {}, "postern-canary.postern-system.svc", true, "not valid for postern-canary.postern-system.svc"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t, append(tt.objects, ourNamespace())...)
			r := newRegistrar(t, c, nil)
			r.bundle.(*bundle).invalid = []string{tt.invalid}
			skipped := countSkipped(t, r)
			tt.change(c)
			var service string
			asked := c.answering(t, func(webhook string, lease *unstructured.Unstructured) error {
				w := webhookList(c.registered(t, validatingKind, canaryName).Object)[0]
				service, _, _ = unstructured.NestedString(asMap(w), "clientConfig", "service", "name")
				return called(webhook, lease)
			})
			err := r.canary.await(t.Context(), "")
			if (err != nil) != tt.transient || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Not ready: got %v, want to wait for a moment: %v", err, tt.transient)
			}
			r.canary.impossible = time.Now().Add(-refusedTime)
			if err := r.canary.await(t.Context(), ""); err != nil || *asked > 0 || !strings.Contains(r.canary.logged, tt.want) {
				t.Errorf("Not ready: got %v, asked %d times and skipped %q, want to go on because of %q", err, *asked, r.canary.logged, tt.want)
			}
			if err := r.Called(t.Context()); err != nil || !r.canary.called || service != "postern" {
				t.Errorf("Ready: got %v by Service %q, want to be called by postern", err, service)
			}
			if skipped() != 1 {
				t.Error("Got a rollout that waits for the canary, as it seems")
			}
		})
	}
	t.Run("a Service that selects this pod", func(t *testing.T) {
		for _, objects := range [][]runtime.Object{{podWith("app", "postern", "canary", "true", "more", "labels")}, {}} { // Without a pod, nothing is known.
			c := newCluster(t, append(objects, ourNamespace(), selecting)...)
			r := newRegistrar(t, c, nil)
			var service string
			c.answering(t, func(webhook string, lease *unstructured.Unstructured) error {
				w := webhookList(c.registered(t, validatingKind, canaryName).Object)[0]
				service, _, _ = unstructured.NestedString(asMap(w), "clientConfig", "service", "name")
				return called(webhook, lease)
			})
			if err := r.canary.await(t.Context(), ""); err != nil || !r.canary.called || service != "postern-canary" {
				t.Errorf("Got %v by Service %q and skipped %q, want to be called by postern-canary", err, service, r.canary.logged)
			}
		}
	})
	t.Run("the API server is away", func(t *testing.T) {
		c := newCluster(t, ourNamespace(), canaryService())
		r := newRegistrar(t, c, nil)
		c.PrependReactor("get", "services", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("away") })
		if err := r.Called(t.Context()); err == nil || r.canary.logged != "" {
			t.Errorf("Got %v and skipped %q, want an error", err, r.canary.logged)
		}
	})
	t.Run("the configuration must not be written", func(t *testing.T) {
		c := newCluster(t, ourNamespace(), canaryService())
		r := newRegistrar(t, c, nil)
		c.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, denied("cannot patch") })
		if err := r.Called(t.Context()); err == nil {
			t.Error("Got no error at first, want to try again")
		}
		r.canary.impossible = time.Now().Add(-refusedTime)
		if err := r.Called(t.Context()); err != nil || !strings.Contains(r.canary.logged, "cannot patch") || len(deletions(c)) > 0 {
			t.Errorf("Got %v, skipped %q and deleted %v, want to go on", err, r.canary.logged, deletions(c))
		}
	})
}

// TestPrepareWaitsForTheCanary checks which replicas get ready only after the API server has called them, and that they do
// nothing before.
func TestPrepareWaitsForTheCanary(t *testing.T) {
	for _, tt := range []struct {
		name string
		// deployment, revision and change are those of the replica that has registered, if revision is not negative.
		deployment string
		revision   int64
		change     func(*Deployment, *router.AdmissionService)
		waits      bool
	}{
		{"first install", "", -1, nil, false},
		{"restart", "postern", 2, nil, false},
		{"other webhooks", "postern", 2, slower, true},
		{"rollout with the same webhooks", "postern", 1, nil, true},
		{"restart in a rollout", "postern", 3, nil, true},
		{"a process", "", 0, nil, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t, ourNamespace(), canaryService())
			c.deploy(t, "postern", 3)
			if tt.revision >= 0 {
				mustSync(t, memberOf(t, c, tt.deployment, tt.revision, tt.change), c)
				stale := other(mutatingKind, "postern-removed")
				service := map[string]any{"namespace": "postern-system", "name": "postern", "path": "/removed/mutate"}
				stale.Object["webhooks"] = []any{map[string]any{"name": "w.postern.dev", "clientConfig": map[string]any{"service": service}}}
				stale.SetAnnotations(c.registered(t, mutatingKind, "postern-pods").GetAnnotations())
				if err := c.Tracker().Create(resources()[mutatingKind], stale, ""); err != nil {
					t.Fatal(err)
				}
			}
			r := memberOf(t, c, "postern", 2, nil)
			r.joined.Store(false)
			r.bundle.(*bundle).replace("another ca")
			routed := false
			asked := c.answering(t, func(webhook string, lease *unstructured.Unstructured) error {
				if routed {
					return called(webhook, lease)
				}
				return noRoute(webhook, lease)
			})
			before := len(c.Actions())
			err := r.Prepare(t.Context())
			if waits := err != nil && strings.Contains(err.Error(), "the API server has not reached this replica by Service postern-canary"); waits != tt.waits {
				t.Fatalf("Got the error %v, want it to wait: %v", err, tt.waits)
			}
			if !tt.waits {
				if *asked > 0 {
					t.Errorf("Asked %d times, want not to ask", *asked)
				}
				return
			}
			for _, a := range c.Actions()[before:] {
				if patch, ok := a.(clienttesting.PatchAction); a.GetVerb() == "delete" || ok && patch.GetName() != canaryName {
					t.Errorf("Got %s before the API server called the replica", a)
				}
			}
			if err := r.Leave(t.Context(), true); err != nil || len(deletions(c)) > 0 {
				t.Errorf("Deleted %v (%v), want nothing before the replica takes part", deletions(c), err)
			}
			routed = true
			if err := r.Prepare(t.Context()); err != nil && !strings.Contains(err.Error(), "a higher rank") {
				t.Fatal(err)
			}
			if !r.joined.Load() {
				t.Error("The replica does not take part")
			}
			if got := *asked; got != 2 {
				t.Errorf("Asked %d times, want twice", got)
			}
		})
	}
	t.Run("by URL", func(t *testing.T) {
		c := newCluster(t, ourNamespace(), canaryService())
		mustSync(t, memberOf(t, c, "", 0, slower), c)
		r := memberOf(t, c, "", 0, func(d *Deployment, _ *router.AdmissionService) { d.Service, d.URL = "", "https://example.com" })
		asked := c.answering(t, noRoute)
		if err := r.Prepare(t.Context()); err != nil || *asked > 0 {
			t.Errorf("Got %v and asked %d times, want not to ask", err, *asked)
		}
	})
}

// TestPrepareOfAnUninstalledPostern checks that a replica that the API server cannot call removes what an uninstall has left.
func TestPrepareOfAnUninstalledPostern(t *testing.T) {
	ns := ourNamespace()
	c := newCluster(t, ns, canaryService())
	mustSync(t, memberOf(t, c, "postern", 1, slower), c)
	ns.SetAnnotations(map[string]string{UninstalledAnnotation: everyDeployment})
	if err := c.Tracker().Update(namespaces, ns, ""); err != nil {
		t.Fatal(err)
	}
	r := memberOf(t, c, "postern", 2, nil)
	asked := c.answering(t, noRoute)
	if err := r.Prepare(t.Context()); err != nil || *asked > 0 {
		t.Errorf("Got %v and asked %d times, want not to wait", err, *asked)
	}
	mustSync(t, r, c)
	if c.registered(t, mutatingKind, "postern-pods") != nil || c.registered(t, validatingKind, "postern-pods") != nil {
		t.Error("Got configurations, want them removed")
	}
}

// TestPrepareLooksAgain has another Deployment register while a replica waits for its canary.
func TestPrepareLooksAgain(t *testing.T) {
	c := newCluster(t, ourNamespace(), canaryService())
	c.deploy(t, "postern", 2)
	c.deploy(t, "other", 1)
	mustSync(t, memberOf(t, c, "postern", 1, nil), c)
	theirs, err := claim{Deployment: "other", UID: "other-uid", Revision: 1, Digest: "d"}.text()
	if err != nil {
		t.Fatal(err)
	}
	r := memberOf(t, c, "postern", 2, nil)
	c.answering(t, func(webhook string, lease *unstructured.Unstructured) error {
		c.edit(t, func(u *unstructured.Unstructured) { u.SetAnnotations(map[string]string{ClaimAnnotation: theirs}) })
		return called(webhook, lease)
	})
	if err := r.Prepare(t.Context()); err == nil || !strings.Contains(err.Error(), "registered by Deployment other") || len(deletions(c)) > 1 {
		t.Errorf("Got %v and deleted %v, want to stay away from the other Deployment", err, deletions(c))
	}
}

// TestCanaryWithTroubledConfiguration checks that the configuration is made again if others remove it or make it invalid, and that
// a failure to remove it does no harm.
func TestCanaryWithTroubledConfiguration(t *testing.T) {
	t.Run("removed by others", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, ourNamespace(), canaryService())
			r := newRegistrar(t, c, nil)
			times := 0
			c.answering(t, func(webhook string, lease *unstructured.Unstructured) error {
				if times++; times > 1 {
					return called(webhook, lease)
				}
				return c.Tracker().Delete(resources()[validatingKind], "", canaryName) // It was not observed.
			})
			if err := r.Called(t.Context()); err != nil || times != 2 {
				t.Errorf("Got %v after %d attempts", err, times)
			}
		})
	})
	t.Run("invalid", func(t *testing.T) {
		c := newCluster(t, ourNamespace(), canaryService())
		r := newRegistrar(t, c, nil)
		c.answering(t, called)
		broken := other(validatingKind, canaryName)
		if err := c.Tracker().Create(resources()[validatingKind], broken, ""); err != nil {
			t.Fatal(err)
		}
		c.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			_, err := c.Tracker().Get(resources()[validatingKind], "", canaryName)
			if err == nil {
				return true, nil, apierrors.NewInvalid(schema.GroupKind{Kind: validatingKind}, canaryName, nil)
			}
			return false, nil, nil
		})
		if err := r.Called(t.Context()); err == nil {
			t.Fatal("Got no error")
		}
		if err := r.Called(t.Context()); err != nil {
			t.Errorf("Got %v, want the configuration made again", err)
		}
	})
	t.Run("not removed", func(t *testing.T) {
		c := newCluster(t, ourNamespace(), canaryService())
		r := newRegistrar(t, c, nil)
		c.answering(t, called)
		c.PrependReactor("delete", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, denied("cannot delete") })
		if err := r.Called(t.Context()); err != nil || !r.canary.called {
			t.Errorf("Got %v, want the call to count", err)
		}
	})
}

// TestARefusalMayPass checks that a replica that is not ready does not go on because of one refusal, and does because of a lasting one.
func TestARefusalMayPass(t *testing.T) {
	for _, passes := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, ourNamespace(), canaryService())
			mustSync(t, memberOf(t, c, "postern", 1, slower), c)
			r := memberOf(t, c, "postern", 2, nil)
			attempts := 0
			c.answering(t, func(webhook string, lease *unstructured.Unstructured) error {
				if attempts++; passes && attempts == 3 {
					return called(webhook, lease)
				}
				return denied("a policy")
			})
			start := time.Now()
			for err := r.Prepare(t.Context()); err != nil; err = r.Prepare(t.Context()) {
				if !strings.Contains(err.Error(), "a policy") || time.Since(start) > time.Minute {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
			}
			if took := time.Since(start); r.canary.called != passes || passes != (took < refusedTime) {
				t.Errorf("Got called: %v after %v, want %v", r.canary.called, took, passes)
			}
		})
	}
}

// checkCanary checks that the last canary matches the dry-run request and nothing else.
func checkCanary(t *testing.T, config *unstructured.Unstructured, create clienttesting.CreateActionImpl, lease *unstructured.Unstructured) {
	t.Helper()
	if config == nil {
		t.Fatal("The canary is not registered when the request is made")
	}
	if got := create.GetCreateOptions().DryRun; len(got) != 1 || got[0] != metav1.DryRunAll {
		t.Errorf("Got the dry run %v, want that nothing is stored", got)
	}
	nonce := lease.GetLabels()[canaryLabel]
	i := slices.IndexFunc(webhookList(config.Object), func(w any) bool {
		objects, _, _ := unstructured.NestedStringMap(asMap(w), "objectSelector", "matchLabels")
		return len(objects) == 1 && objects[canaryLabel] == nonce
	})
	if nonce == "" || i < 0 {
		t.Fatalf("Got no webhook for the labels %v in %v", lease.GetLabels(), config)
	}
	w := asMap(webhookList(config.Object)[i])
	namespaces, _, _ := unstructured.NestedStringMap(w, "namespaceSelector", "matchLabels")
	if namespaces["kubernetes.io/metadata.name"] != "postern-system" || create.GetNamespace() != "postern-system" || w["failurePolicy"] != "Fail" {
		t.Errorf("Got %v, want a webhook that fails closed, for our namespace", w)
	}
	if path := calledPath(w); !strings.HasSuffix(path, "/canary/"+nonce+"/validate") {
		t.Errorf("Got the path %s, want the one of this process", path)
	}
}

// TestCanariesShareAConfiguration checks that two replicas that start at the same time do not disturb each other, that a
// replica whose canary another replica removed applies it again, and that a replica that crashes has one webhook.
func TestCanariesShareAConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, ourNamespace())
		observed := false
		c.answering(t, func(webhook string, lease *unstructured.Unstructured) error {
			if !observed {
				return nil
			}
			return called(webhook, lease)
		})
		var replicas []*Registrar
		for _, name := range []string{"us", "us", "them"} {
			r := newRegistrar(t, c, nil)
			r.fleet.name, r.CanaryPath = name, fmt.Sprintf("/canary/nonce%d", len(replicas))
			replicas = append(replicas, r)
			if err := r.Called(t.Context()); !errors.Is(err, errNotObserved) {
				t.Errorf("Got %v before the API server has observed the canaries", err)
			}
		}
		list := webhookList(c.registered(t, validatingKind, canaryName).Object)
		if len(list) != 2 || calledPath(list[0]) != "/canary/nonce1/validate" || calledPath(list[1]) != "/canary/nonce2/validate" {
			t.Errorf("Got the webhooks %v, want one for each replica, of its last process", list)
		}
		observed = true
		for _, r := range replicas[1:] {
			if err := r.Called(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if left := c.registered(t, validatingKind, canaryName); left != nil {
			t.Errorf("Got the canary %v, want it removed", left)
		}
	})
}

func TestCanaryIsNotAClient(t *testing.T) {
	c := newCluster(t, ourNamespace())
	r := newRegistrar(t, c, nil)
	c.PrependReactor("create", "leases", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("away") })
	if err := r.Called(t.Context()); err == nil {
		t.Fatal("Got no error")
	}
	r.bundle.(*bundle).replace("new")
	mustSync(t, r, c)
	if got := r.bundle.(*bundle).seen(); got != "" {
		t.Errorf("Got the bundle %q of the canary, want none before anything else is registered", got)
	}
}
