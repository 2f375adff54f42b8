package router

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
)

func TestUninstallIsForGood(t *testing.T) {
	c := newCluster(t, ourNamespace())
	r := newRegistrar(t, c, "10:00", nil)
	mustSync(t, r, c)
	var stamped []string
	c.PrependReactor("patch", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		stamped = append(stamped, string(action.(clienttesting.PatchAction).GetPatch()))
		return false, nil, nil
	})
	before := len(c.applies())
	if err := c.Tracker().Add(other(mutatingKind, "postern-old", "x")); err != nil {
		t.Fatal(err)
	}
	removed, err := Uninstall(t.Context(), c)
	want := []string{"mutatingwebhookconfigurations/postern-old", "mutatingwebhookconfigurations/postern-pods", "validatingwebhookconfigurations/postern-pods"}
	if slices.Sort(removed); err != nil || !slices.Equal(removed, want) {
		t.Fatalf("Removed %v (%v), want %v", removed, err, want)
	}
	for _, s := range stamped {
		var u unstructured.Unstructured
		_ = u.UnmarshalJSON([]byte(strings.Replace(s, "{", `{"apiVersion":"v1","kind":"X",`, 1)))
		r.notice(klog.Background(), generationOf(&u))
	}
	r.forgive()
	mustSync(t, r, c)
	if got := c.applies()[before:]; len(got) != 0 || c.registered(t, mutatingKind, "postern-pods") != nil {
		t.Errorf("Applied %v after the end, want nothing", got)
	}
}

func TestStaleConfigurations(t *testing.T) {
	for _, prepare := range []bool{true, false} {
		unlabelled := other(mutatingKind, "somebodys", "")
		unlabelled.SetLabels(nil)
		c := newCluster(t, ourNamespace(), unlabelled, other(mutatingKind, "postern-old", "2026-01-01T00:00:00.000Z/x"),
			other(validatingKind, "postern-new", at("12:00").UTC().Format(generationTime)+"/x"), other(validatingKind, "postern-lost", ""))
		r := newRegistrar(t, c, "10:00", nil)
		if prepare {
			if err := r.Prepare(t.Context()); err != nil {
				t.Fatal(err)
			}
		} else {
			mustSync(t, r, c)
		}
		var actions []string
		for _, a := range c.Actions() {
			if patch, ok := a.(clienttesting.PatchAction); ok && strings.Contains(string(patch.GetPatch()), r.generation.String()) && !strings.Contains(string(patch.GetPatch()), "webhooks") {
				actions = append(actions, "stamp "+patch.GetName())
			}
			if del, ok := a.(clienttesting.DeleteAction); ok {
				actions = append(actions, "delete "+del.GetName())
			}
		}
		// The order of the two kinds is not fixed.
		one, two := []string{"stamp postern-old", "delete postern-old"}, []string{"stamp postern-lost", "delete postern-lost"}
		if !slices.Equal(actions, slices.Concat(one, two)) && !slices.Equal(actions, slices.Concat(two, one)) {
			t.Errorf("Prepare %v: got %v, want each stale one stamped and deleted", prepare, actions)
		}
	}
}

func TestNamespaceThatIsNotThere(t *testing.T) {
	dying := ourNamespace()
	dying.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)})
	dying.SetFinalizers([]string{"kubernetes"})
	url := func(d *Deployment, _ *AdmissionService) { d.URL = "https://x" }
	for _, c := range []struct {
		name       string
		namespace  *unstructured.Unstructured
		change     func(*Deployment, *AdmissionService)
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
			r := newRegistrar(t, cluster, "10:00", c.change)
			r.owned = c.wasThere
			mustSync(t, r, cluster)
			got := cluster.registered(t, mutatingKind, "postern-pods")
			if (got != nil) != c.registered || got != nil && len(got.GetOwnerReferences()) != c.owners {
				t.Errorf("Got %v, want it registered: %v, with %d owners", got, c.registered, c.owners)
			}
		})
	}
}
