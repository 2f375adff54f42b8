package app

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
)

// TestMissingDefinitionIsNamedUntilItIsApplied starts an informer of a resource that the API server does not serve yet.
func TestMissingDefinitionIsNamedUntilItIsApplied(t *testing.T) {
	gvr := schema.GroupVersionResource{Group: "policy.postern.dev", Version: "v1", Resource: "podsecuritypolicies"}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{gvr: "PodSecurityPolicyList"})
	var applied atomic.Bool
	client.PrependReactor("list", gvr.Resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		return !applied.Load(), nil, apierrors.NewNotFound(gvr.GroupResource(), "")
	})
	unsynced := errors.New("informers have not synced yet")
	c := newCustomInformers(client)
	if got := c.explain(unsynced); !errors.Is(got, unsynced) {
		t.Errorf("Got %v before anything was asked, want %v", got, unsynced)
	}
	c.ForResource(gvr)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c.Start(ctx.Done())
	const want = "The CustomResourceDefinition podsecuritypolicies.policy.postern.dev is missing; those of Postern are in installer/crds"
	for c.explain(unsynced).Error() != want {
		select {
		case <-ctx.Done():
			t.Fatalf("Got %v, want %s", c.explain(unsynced), want)
		case <-time.After(10 * time.Millisecond):
		}
	}
	applied.Store(true)
	if !c.await(ctx) {
		t.Fatal("The informer does not sync, although the definition was applied")
	}
	if got := c.explain(nil); got != nil {
		t.Errorf("Got %v when everything is synced", got)
	}
}

// TestOtherErrorsAreNotCalledAMissingDefinition has the API server refuse the list.
func TestOtherErrorsAreNotCalledAMissingDefinition(t *testing.T) {
	gvr := schema.GroupVersionResource{Group: "policy.postern.dev", Version: "v1", Resource: "podsecuritypolicies"}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{gvr: "PodSecurityPolicyList"})
	asked := make(chan struct{}, 100)
	client.PrependReactor("list", gvr.Resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		asked <- struct{}{}
		return true, nil, apierrors.NewForbidden(gvr.GroupResource(), "", errors.New("no"))
	})
	c := newCustomInformers(client)
	c.ForResource(gvr)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c.Start(ctx.Done())
	<-asked
	<-asked // The error of the first list was handled before the second one.
	if got := c.explain(errors.New("not synced")); strings.Contains(got.Error(), "missing") {
		t.Errorf("Got %v", got)
	}
	cancel()
	if c.await(ctx) {
		t.Error("The informers are synced without an answer")
	}
}

// TestOptionalDefinition applies a definition while its informer runs, and removes it again. The informer misses that the
// objects are deleted.
func TestOptionalDefinition(t *testing.T) {
	gvr := schema.GroupVersionResource{Group: "settings.k8s.io", Version: "v1alpha1", Resource: "podpresets"}
	kinds := map[schema.GroupVersionResource]string{gvr: "PodPresetList"}
	preset := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "settings.k8s.io/v1alpha1", "kind": "PodPreset", "metadata": map[string]any{"name": "a", "namespace": "ns"}}}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, preset)
	var served atomic.Bool
	missing := apierrors.NewNotFound(gvr.GroupResource(), "")
	client.PrependReactor("list", gvr.Resource, func(clienttesting.Action) (bool, runtime.Object, error) { return !served.Load(), nil, missing })
	watches := make(chan *watch.FakeWatcher, 100)
	client.PrependWatchReactor(gvr.Resource, func(clienttesting.Action) (bool, watch.Interface, error) {
		if !served.Load() {
			return true, nil, missing
		}
		w := watch.NewFake()
		watches <- w
		return true, w, nil
	})
	c := newOptionalInformers(client)
	store := c.ForResource(gvr).Informer().GetStore()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c.Start(ctx.Done())
	if !c.await(ctx) {
		t.Fatal("The informer does not sync without the definition")
	}
	unsynced := errors.New("not synced")
	if got := c.explain(unsynced); !errors.Is(got, unsynced) {
		t.Errorf("Got %v, want no word of the definition", got)
	}
	holds := func(n int) {
		t.Helper()
		for len(store.List()) != n {
			select {
			case <-ctx.Done():
				t.Fatalf("The informer has %d objects, want %d", len(store.List()), n)
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	holds(0)
	served.Store(true)
	holds(1)
	w := <-watches
	served.Store(false)
	w.Stop()
	holds(0)
}

// TestAnOptionalResourceThatMayNotBeRead has the API server refuse the list.
func TestAnOptionalResourceThatMayNotBeRead(t *testing.T) {
	gvr := schema.GroupVersionResource{Group: "settings.k8s.io", Version: "v1alpha1", Resource: "podpresets"}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{gvr: "PodPresetList"})
	asked := make(chan struct{}, 100)
	client.PrependReactor("list", gvr.Resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		asked <- struct{}{}
		return true, nil, apierrors.NewForbidden(gvr.GroupResource(), "", errors.New("no"))
	})
	c := newOptionalInformers(client)
	c.ForResource(gvr)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c.Start(ctx.Done())
	<-asked
	<-asked // The error of the first list was handled before the second one.
	cancel()
	if c.await(ctx) {
		t.Error("The informer is synced without an answer")
	}
}
