package registration

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/postern-dev/postern/pkg/router"
)

// twoWebhooks returns a registrar whose service has a second mutating webhook.
func twoWebhooks(t *testing.T, c *cluster) *Registrar {
	t.Helper()
	return newRegistrar(t, c, func(_ *Deployment, s *router.AdmissionService) {
		second := s.MutatingConfig.Webhooks[0].DeepCopy()
		second.Name = "second.postern.dev"
		s.MutatingConfig.Webhooks = append(s.MutatingConfig.Webhooks, *second)
	})
}

// never adds a match condition to each webhook that no request meets, and a webhook of somebody else before them.
func never(u *unstructured.Unstructured) {
	list := []any{map[string]any{"name": "a.example.com", "matchConditions": []any{map[string]any{"name": "theirs", "expression": "true"}}}}
	for _, w := range webhookList(u.Object) {
		conditions, _ := asMap(w)["matchConditions"].([]any)
		asMap(w)["matchConditions"] = append([]any{map[string]any{"name": "never", "expression": "false"}}, conditions...)
		list = append(list, w)
	}
	u.Object["webhooks"] = list
}

// TestConditionsOfOthersAreRemoved is somebody who switches webhooks off by a match condition, which apply leaves there.
func TestConditionsOfOthersAreRemoved(t *testing.T) {
	c := newCluster(t, ourNamespace())
	r := twoWebhooks(t, c)
	mustSync(t, r, c)
	before := webhooksByName(c.registered(t, mutatingKind, "postern-pods").DeepCopy().Object)
	c.editOne(t, mutatingKind, never)
	c.ClearActions()
	mustSync(t, r, c)
	if got := patches(c); len(got) != 1 {
		t.Errorf("Got the writes %v, want one", got)
	}
	after := webhooksByName(c.registered(t, mutatingKind, "postern-pods").Object)
	for name := range before {
		if !reflect.DeepEqual(after[name], before[name]) {
			t.Errorf("Got %v, want %v", after[name], before[name])
		}
	}
	if theirs, _ := asMap(after["a.example.com"])["matchConditions"].([]any); len(after) != 3 || len(theirs) != 1 {
		t.Errorf("Got %v, want the webhook of somebody else as it was", after)
	}
	c.ClearActions()
	mustSync(t, r, c)
	if got := patches(c); len(got) > 0 {
		t.Errorf("Got the writes %v after the repair, want none", got)
	}
}

// onJSONPatch calls before each JSON patch, as somebody who is faster.
func onJSONPatch(c *cluster, before func(clienttesting.PatchAction) error) {
	c.PrependReactor("patch", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if p, ok := a.(clienttesting.PatchAction); ok && p.GetPatchType() == types.JSONPatchType {
			if err := before(p); err != nil {
				return true, nil, err
			}
		}
		return false, nil, nil
	})
}

// TestConditionsThatWereNotSeenStay is somebody who changes the configuration just before a repair.
func TestConditionsThatWereNotSeenStay(t *testing.T) {
	for name, change := range map[string]func(*unstructured.Unstructured){
		"another Deployment takes it over": func(u *unstructured.Unstructured) {
			u.SetAnnotations(map[string]string{ClaimAnnotation: `{"deployment":"next","uid":"next-uid","revision":1,"digest":"d"}`})
		},
		"another webhook is at its place": never,
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, ourNamespace())
			c.deploy(t, "next", 1)
			r := newRegistrar(t, c, nil)
			mustSync(t, r, c)
			c.editOne(t, mutatingKind, never)
			onJSONPatch(c, func(p clienttesting.PatchAction) error {
				have, err := c.Tracker().Get(p.GetResource(), "", p.GetName())
				if err != nil {
					return err
				}
				changed := have.(*unstructured.Unstructured).DeepCopy()
				change(changed)
				return c.Tracker().Update(p.GetResource(), changed, "")
			})
			if _, err := r.sync(t.Context(), c.stores(t, r)); err == nil || !strings.Contains(err.Error(), "changing the webhooks of MutatingWebhookConfiguration postern-pods") {
				t.Errorf("Got the error %v, want a refused write", err)
			}
			for _, w := range webhookList(c.registered(t, mutatingKind, "postern-pods").Object) {
				conditions, _ := asMap(w)["matchConditions"].([]any)
				if names := named(conditions); names["theirs"] == nil && names["never"] == nil {
					t.Errorf("Got the conditions %v of %v, want them left alone", conditions, asMap(w)["name"])
				}
			}
		})
	}
}

// TestConditionsThatAnotherReplicaRemoves is a patch that fails because another replica was faster.
func TestConditionsThatAnotherReplicaRemoves(t *testing.T) {
	c := newCluster(t, ourNamespace())
	r := newRegistrar(t, c, nil)
	mustSync(t, r, c)
	c.editOne(t, mutatingKind, never)
	tried := 0
	onJSONPatch(c, func(p clienttesting.PatchAction) error {
		if tried++; tried == 1 {
			return apierrors.NewInvalid(schema.GroupKind{Kind: mutatingKind}, p.GetName(), nil)
		}
		return nil
	})
	mustSync(t, r, c)
	ours := webhooksByName(c.registered(t, mutatingKind, "postern-pods").Object)["pods.postern.dev"]
	if conditions, _ := asMap(ours)["matchConditions"].([]any); tried != 2 || named(conditions)["never"] != nil {
		t.Errorf("Got the conditions %v after %d attempts, want Postern's after two", conditions, tried)
	}
}

// TestConditionsThatComeBack is a policy of the cluster that adds a match condition to whatever is written.
func TestConditionsThatComeBack(t *testing.T) {
	c := newCluster(t, ourNamespace())
	r := newRegistrar(t, c, nil)
	registry := measure(r)
	mustSync(t, r, c)
	c.editOne(t, mutatingKind, never)
	c.PrependReactor("patch", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if p, ok := a.(clienttesting.PatchAction); !ok || p.GetPatchType() != types.JSONPatchType {
			return false, nil, nil
		}
		have, err := c.Tracker().Get(a.GetResource(), "", "postern-pods")
		return true, have, err
	})
	_, err := r.sync(t.Context(), c.stores(t, r))
	if want := "MutatingWebhookConfiguration postern-pods: somebody changes the webhooks while they are written"; err == nil || err.Error() != want {
		t.Errorf("Got the error %v, want %q", err, want)
	}
	if got := registeredMetrics(t, registry); !maps.Equal(got, map[string]float64{mutatingKind: 0, validatingKind: 1}) {
		t.Errorf("Got the metrics %v, want 0 for the configuration that somebody changes", got)
	}
}

// TestContestedConfigurationIsNotRegistered checks the metric while somebody undoes each repair: it does not change with each.
func TestContestedConfigurationIsNotRegistered(t *testing.T) {
	c := newCluster(t, ourNamespace())
	r := newRegistrar(t, c, nil)
	registry := measure(r)
	mustSync(t, r, c)
	for range repairBurst + 2 {
		c.editOne(t, mutatingKind, never)
		mustSync(t, r, c)
	}
	for repairs := range 2 {
		r.repairs[configKey{mutatingKind, "postern-pods"}].limiter = rate.NewLimiter(0, repairs)
		c.editOne(t, mutatingKind, never)
		c.ClearActions()
		mustSync(t, r, c)
		if got := registeredMetrics(t, registry)[mutatingKind]; got != 0 || len(patches(c)) != repairs {
			t.Errorf("Got the metric %v after %d repairs while somebody undoes each of them, want 0 after %d", got, len(patches(c)), repairs)
		}
	}
	for tokens, want := range []float64{0, 0, 1} {
		r.repairs[configKey{mutatingKind, "postern-pods"}].limiter = rate.NewLimiter(0, tokens)
		again, err := r.sync(t.Context(), c.stores(t, r))
		if err != nil {
			t.Fatal(err)
		}
		if got := registeredMetrics(t, registry)[mutatingKind]; got != want || (again == repairInterval) != (want == 0) {
			t.Errorf("Got the metric %v and another look after %v, with %d repairs left, want %v", got, again, tokens, want)
		}
	}
}

// TestConflictsAreTriedAgain is a watch that stalls: the cache has an old configuration.
func TestConflictsAreTriedAgain(t *testing.T) {
	for conflicts, want := range map[int]string{1: "", 2: "the object has been modified"} {
		c := newCluster(t, ourNamespace())
		r := newRegistrar(t, c, nil)
		mustSync(t, r, c)
		stale := c.stores(t, r)
		c.editOne(t, mutatingKind, webhookField("Ignore", "failurePolicy"))
		for _, u := range objects(stale[mutatingKind]) {
			webhookField("Ignore", "failurePolicy")(u)
			webhookField(base64.StdEncoding.EncodeToString(cert("ca", "former")), "clientConfig", "caBundle")(u)
		}
		left := conflicts
		c.PrependReactor("patch", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if left--; left < 0 {
				return false, nil, nil
			}
			return true, nil, apierrors.NewConflict(a.GetResource().GroupResource(), "postern-pods", errors.New("the object has been modified"))
		})
		_, err := r.sync(t.Context(), stale)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d conflicts: got the error %v, want %q", conflicts, err, want)
		}
		policy := asMap(webhookList(c.registered(t, mutatingKind, "postern-pods").Object)[0])["failurePolicy"]
		if repaired := policy == "Fail"; repaired != (want == "") {
			t.Errorf("%d conflicts: got the failure policy %v", conflicts, policy)
		}
		if got, want := registeredBundle(t, c), string(cert("ca")); got != want {
			t.Errorf("%d conflicts: got the bundle %q, want %q, not what was only in the cache", conflicts, got, want)
		}
	}
}

func labeled(name string, labels map[string]string) *unstructured.Unstructured {
	u := ourNamespace()
	u.SetName(name)
	u.SetUID(types.UID(name))
	u.SetLabels(labels)
	return u
}

func notIn(key string, values ...string) map[string]any {
	list := make([]any, len(values))
	for i, v := range values {
		list[i] = v
	}
	return map[string]any{"matchExpressions": []any{map[string]any{"key": key, "operator": "NotIn", "values": list}}}
}

// TestSelectorsOfOthersAreReported covers what a selector excludes from webhooks that have none.
func TestSelectorsOfOthersAreReported(t *testing.T) {
	aks := notIn("control-plane", "true")
	own := func(d *Deployment, s *router.AdmissionService) {
		d.ExemptNamespaces = append(d.ExemptNamespaces, "postern-system")
		s.MutatingConfig.Webhooks[0].MatchConditions = []admissionregistrationv1.MatchCondition{{Name: router.OwnNamespace, Expression: "true"}}
	}
	both := func(d *Deployment, s *router.AdmissionService) {
		s.MutatingConfig.Webhooks = append(s.MutatingConfig.Webhooks, *s.MutatingConfig.Webhooks[0].DeepCopy())
		own(d, s)
		s.MutatingConfig.Webhooks[0].Name = "own.postern.dev"
	}
	for name, tt := range map[string]struct {
		field    string
		selector map[string]any
		change   func(*Deployment, *router.AdmissionService)
		labeled  []string
		want     string
	}{
		"everything is selected": {field: "namespaceSelector", selector: map[string]any{}},
		"any object":             {field: "objectSelector", selector: map[string]any{}},
		"no namespace":           {field: "namespaceSelector", selector: aks},
		"a namespace": {
			field: "namespaceSelector", selector: aks, labeled: []string{"a"},
			want: `the namespaceSelector "control-plane notin (true)" that somebody added to mutating postern-pods excludes the namespaces a`,
		},
		"as many as are named": {
			field: "namespaceSelector", selector: aks, labeled: []string{"a", "b", "c"},
			want: `the namespaceSelector "control-plane notin (true)" that somebody added to mutating postern-pods excludes the namespaces a, b, c`,
		},
		"many": {
			field: "namespaceSelector", selector: aks, labeled: []string{"a", "b", "c", "d"},
			want: `the namespaceSelector "control-plane notin (true)" that somebody added to mutating postern-pods excludes the namespaces a, b, c and others`,
		},
		"what is left alone":       {field: "namespaceSelector", selector: aks, labeled: []string{"kube-system", "postern-system"}},
		"others than the only one": {field: "namespaceSelector", selector: aks, labeled: []string{"a", "kube-system"}, change: own},
		"the only one": {
			field: "namespaceSelector", selector: aks, labeled: []string{"postern-system"}, change: own,
			want: `the namespaceSelector "control-plane notin (true)" that somebody added to mutating postern-pods excludes the namespaces postern-system`,
		},
		"objects": {
			field: "objectSelector", selector: map[string]any{"matchLabels": map[string]any{"a": "b"}},
			want: `the objectSelector "a=b" that somebody added to mutating postern-pods excludes other objects`,
		},
		"objects of two webhooks": {
			field: "objectSelector", selector: map[string]any{"matchLabels": map[string]any{"a": "b"}}, change: both,
			want: `the objectSelector "a=b" that somebody added to mutating postern-pods excludes other objects`,
		},
		"a long one": {
			field: "objectSelector", selector: notIn("a", strings.Repeat("b", 60), strings.Repeat("c", 60), strings.Repeat("d", 60), strings.Repeat("e", 60)),
			want: `the objectSelector "a notin (` + strings.Repeat("b", 60) + "," + strings.Repeat("c", 60) + "," + strings.Repeat("d", 60) + "," + strings.Repeat("e", 8) + ` ..." that somebody added to mutating postern-pods excludes other objects`,
		},
		"one that is not valid": {
			field: "namespaceSelector", selector: map[string]any{"matchExpressions": []any{map[string]any{"key": "a", "operator": "Odd"}}},
			want: `the namespaceSelector "<error>" that somebody added to mutating postern-pods cannot be read`,
		},
		"a wanted one": {field: "objectSelector", selector: map[string]any{"matchLabels": map[string]any{"a": "b"}}, change: func(_ *Deployment, s *router.AdmissionService) {
			s.MutatingConfig.Webhooks[0].ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []runtime.Object{}
			for _, ns := range []string{"postern-system", "kube-system", "a", "b", "c", "d"} {
				objects = append(objects, labeled(ns, map[string]string{"control-plane": fmt.Sprint(strings.Contains(" "+strings.Join(tt.labeled, " ")+" ", " "+ns+" "))}))
			}
			c := newCluster(t, objects...)
			r := newRegistrar(t, c, func(d *Deployment, s *router.AdmissionService) {
				d.ExemptNamespaces = []string{"kube-system"}
				if tt.change != nil {
					tt.change(d, s)
				}
			})
			registry := measure(r)
			var told []string
			r.Notify = func(_, reason, message string) {
				if reason == EventNarrowed {
					told = append(told, message)
				}
			}
			mustSync(t, r, c)
			c.editOne(t, mutatingKind, func(u *unstructured.Unstructured) {
				for _, w := range webhookList(u.Object) {
					asMap(w)[tt.field] = tt.selector
				}
			})
			applied := len(c.applies())
			for range 2 {
				mustSync(t, r, c)
			}
			var want []string
			metric := 0.0
			if tt.want != "" {
				metric, want = 1, []string{"Plugins do not see all requests: " + tt.want}
			}
			if got := gauges(t, registry, "postern_webhook_narrowed"); !maps.Equal(got, map[string]float64{mutatingKind: metric, validatingKind: 0}) {
				t.Errorf("Got the metrics %v, want %v", got, metric)
			}
			if !reflect.DeepEqual(told, want) {
				t.Errorf("Told %q, want %q", told, want)
			}
			if got := len(c.applies()); got != applied {
				t.Errorf("Applied %d times more, want the selector to stay", got-applied)
			}
			c.editOne(t, mutatingKind, func(u *unstructured.Unstructured) {
				for _, w := range webhookList(u.Object) {
					delete(asMap(w), tt.field)
				}
			})
			mustSync(t, r, c)
			if got := gauges(t, registry, "postern_webhook_narrowed"); !maps.Equal(got, map[string]float64{mutatingKind: 0, validatingKind: 0}) {
				t.Errorf("Got the metrics %v without the selector, want 0", got)
			}
		})
	}
}

// TestSelectorsAreLookedAtInTime covers when the namespaces are listed, and what happens if they cannot be.
func TestSelectorsAreLookedAtInTime(t *testing.T) {
	c := newCluster(t, ourNamespace(), labeled("a", map[string]string{"off": "yes"}))
	lists := 0
	var refused error
	c.PrependReactor("list", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		lists++
		return refused != nil, nil, refused
	})
	r := newRegistrar(t, c, nil)
	registry := measure(r)
	see := func(step string, wantLists int, want float64, soon bool) {
		t.Helper()
		again, err := r.sync(t.Context(), c.stores(t, r))
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		if got := gauges(t, registry, "postern_webhook_narrowed")[mutatingKind]; got != want || lists != wantLists {
			t.Errorf("%s: got the metric %v after %d lists, want %v after %d", step, got, lists, want, wantLists)
		}
		if (again > 0) != soon || again > narrowInterval {
			t.Errorf("%s: got another look after %v", step, again)
		}
	}
	see("no selector", 0, 0, false)
	c.editOne(t, mutatingKind, webhookField(notIn("off", "no"), "namespaceSelector"))
	see("a selector that excludes nothing", 1, 0, false)
	see("again", 1, 0, false)
	c.editOne(t, mutatingKind, webhookField(notIn("off", "yes"), "namespaceSelector"))
	see("another one, soon afterwards", 1, 0, true)
	r.narrowed.at = r.narrowed.at.Add(-narrowInterval)
	see("later", 2, 1, false)
	// The gauge tells at the next look that a label has changed.
	a := labeled("a", nil)
	if err := c.Tracker().Update(namespaces, a, ""); err != nil {
		t.Fatal(err)
	}
	see("a label has gone", 2, 1, false)
	r.narrowed.at = r.narrowed.at.Add(-narrowInterval)
	see("and later", 3, 0, false)
	r.narrowed.at = r.narrowed.at.Add(-narrowInterval)
	refused = errors.New("the API server is away")
	see("no list", 4, 0, true)
	c.editOne(t, mutatingKind, webhookField(notIn("off", "later"), "namespaceSelector"))
	r.narrowed.at = r.narrowed.at.Add(-narrowInterval)
	see("no list for a new selector", 5, 1, true)
	c.editOne(t, mutatingKind, webhookField(notIn("off", "last"), "namespaceSelector"))
	r.narrowed.at = r.narrowed.at.Add(-narrowInterval)
	refused = apierrors.NewForbidden(namespaces.GroupResource(), "", errors.New("an older role"))
	see("not allowed", 6, 1, false)
	if want := "may exclude namespaces, which could not be listed"; !strings.Contains(r.narrowed.told, want) {
		t.Errorf("Told %q, want %q", r.narrowed.told, want)
	}
	// A replica that does not register says nothing of it.
	next := newRegistrar(t, c, func(d *Deployment, _ *router.AdmissionService) { d.Timeout = 3 * time.Second })
	mustSync(t, next, c)
	mustSync(t, r, c)
	if got := gauges(t, registry, "postern_webhook_narrowed"); !maps.Equal(got, map[string]float64{mutatingKind: 0, validatingKind: 0}) || r.narrowed.told != "" || r.narrowed.at.IsZero() {
		t.Errorf("Got the metrics %v of a replica that does not register, which has told %q, want 0", got, r.narrowed.told)
	}
}

// TestNamespacesAreListedInPages checks that all pages are read, but not more than are needed.
func TestNamespacesAreListedInPages(t *testing.T) {
	for name, tt := range map[string]struct{ excluded, pages int }{
		"all pages": {1, 4}, "as many as are named": {namedNamespaces, 4}, "one more": {namedNamespaces + 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				asked = append(asked, req.URL.RawQuery)
				list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "NamespaceList"}}
				for i := range tt.excluded {
					if len(asked) == 2 {
						list.Items = append(list.Items, *labeled(fmt.Sprintf("a%d", i), map[string]string{"off": "yes"}))
					}
				}
				if len(asked) < 4 {
					list.SetContinue("more")
				}
				w.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(w).Encode(list)
			}))
			defer server.Close()
			client, err := dynamic.NewForConfig(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			r := &Registrar{writer: writer{client: client}}
			s := foreignSelector{field: "namespaceSelector"}
			got, err := r.excludedNamespaces(t.Context(), map[foreignSelector]labels.Selector{s: labels.SelectorFromSet(labels.Set{"off": "no"})})
			if err != nil || len(got[s]) != tt.excluded {
				t.Errorf("Got %v and the error %v, want %d namespaces", got, err, tt.excluded)
			}
			if want := []string{"limit=1000", "continue=more&limit=1000", "continue=more&limit=1000", "continue=more&limit=1000"}[:tt.pages]; !slices.Equal(asked, want) {
				t.Errorf("Asked for %v, want %v", asked, want)
			}
		})
	}
}

// TestWebhooksAreReplaced is an edit that excludes what Postern applies, as a URL in place of a Service does.
func TestWebhooksAreReplaced(t *testing.T) {
	c := newCluster(t, ourNamespace())
	r := newRegistrar(t, c, nil)
	mustSync(t, r, c)
	c.editOne(t, mutatingKind, func(u *unstructured.Unstructured) {
		never(u)
		asMap(webhookList(u.Object)[1])["failurePolicy"] = "Ignore"
		u.SetResourceVersion("7")
	})
	var merged string
	c.PrependReactor("patch", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		p := a.(clienttesting.PatchAction)
		switch p.GetPatchType() {
		case types.ApplyPatchType:
			return true, nil, apierrors.NewInvalid(schema.GroupKind{Kind: mutatingKind}, p.GetName(), nil)
		case types.MergePatchType:
			merged = string(p.GetPatch())
		default:
			t.Errorf("Got another write after the webhooks were replaced: %s", p.GetPatch())
		}
		return false, nil, nil
	})
	mustSync(t, r, c)
	got := webhookList(c.registered(t, mutatingKind, "postern-pods").Object)
	if conditions, _ := asMap(got[0])["matchConditions"].([]any); len(got) != 1 || named(conditions)["never"] != nil {
		t.Errorf("Got %v, want only the webhook of Postern as it was", got)
	}
	if want := `{"metadata":{"resourceVersion":"7"},"webhooks":[`; !strings.HasPrefix(merged, want) {
		t.Errorf("Got the patch %s, want one that fails if somebody has changed the configuration since", merged)
	}
}
