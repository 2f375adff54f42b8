package app

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// TestAnOptionalDefinitionMayBeMissing starts an informer of a resource of another project.
func TestAnOptionalDefinitionMayBeMissing(t *testing.T) {
	gvr := schema.GroupVersionResource{Group: "autoscaling.k8s.io", Version: "v1", Resource: "verticalpodautoscalers"}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{gvr: "VerticalPodAutoscalerList"})
	asked := make(chan struct{}, 100)
	var applied atomic.Bool
	client.PrependReactor("list", gvr.Resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		asked <- struct{}{}
		return !applied.Load(), nil, apierrors.NewNotFound(gvr.GroupResource(), "")
	})
	c := newCustomInformers(client)
	informer := c.ForResource(gvr).Informer()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c.Start(ctx.Done())
	<-asked
	<-asked // The error of the first list was handled before the second one.
	if !c.await(ctx) {
		t.Error("The process is not ready without the definition")
	}
	if err := errors.New("another reason"); !errors.Is(c.explain(err), err) {
		t.Errorf("Got %v, want %v", c.explain(err), err)
	}
	applied.Store(true)
	for !informer.HasSynced() {
		select {
		case <-ctx.Done():
			t.Fatal("The informer does not sync, although the definition was applied")
		case <-time.After(10 * time.Millisecond):
		}
	}
}
