package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// customInformers are informers of custom resources. A process whose cluster lacks the CustomResourceDefinition of one
// says so and is not ready, and becomes ready when it is applied. Resources of Kubernetes' own projects are optional: their
// informers have objects as soon as the definition is there.
type customInformers struct {
	dynamicinformer.DynamicSharedInformerFactory
	optional dynamicinformer.DynamicSharedInformerFactory

	mu      sync.Mutex
	missing []schema.GroupResource
}

func newCustomInformers(client dynamic.Interface) *customInformers {
	return &customInformers{
		DynamicSharedInformerFactory: dynamicinformer.NewDynamicSharedInformerFactory(client, 0),
		optional:                     dynamicinformer.NewDynamicSharedInformerFactory(client, 0),
	}
}

// isOptional reports whether a group belongs to Kubernetes' projects, to which no plugin can add a resource of its own.
func isOptional(group string) bool { return strings.HasSuffix(group, ".k8s.io") }

// ForResource implements dynamicinformer.DynamicSharedInformerFactory. Plugins call it before the informers start.
func (c *customInformers) ForResource(gvr schema.GroupVersionResource) informers.GenericInformer {
	factory := c.DynamicSharedInformerFactory
	if isOptional(gvr.Group) {
		factory = c.optional
	}
	informer := factory.ForResource(gvr)
	err := informer.Informer().SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		if !apierrors.IsNotFound(err) {
			cache.DefaultWatchErrorHandler(ctx, r, err)
			return
		}
		switch {
		case !c.lacks(gvr.GroupResource()):
		case isOptional(gvr.Group):
			klog.FromContext(ctx).Info("There is no CustomResourceDefinition of an optional resource", "resource", gvr)
		default:
			klog.FromContext(ctx).Error(nil, missingDefinition(gvr.GroupResource()))
		}
	})
	if err != nil {
		klog.Background().Error(err, "Could not watch for missing definitions", "resource", gvr)
	}
	return informer
}

// Start implements dynamicinformer.DynamicSharedInformerFactory.
func (c *customInformers) Start(stop <-chan struct{}) {
	c.DynamicSharedInformerFactory.Start(stop)
	c.optional.Start(stop)
}

// Shutdown implements dynamicinformer.DynamicSharedInformerFactory.
func (c *customInformers) Shutdown() {
	c.DynamicSharedInformerFactory.Shutdown()
	c.optional.Shutdown()
}

// lacks records a missing resource. It returns false for one that is recorded already.
func (c *customInformers) lacks(resource schema.GroupResource) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.Contains(c.missing, resource) {
		return false
	}
	c.missing = append(c.missing, resource)
	return true
}

func missingDefinition(resource schema.GroupResource) string {
	return fmt.Sprintf("The CustomResourceDefinition %s is missing; those of Postern are in installer/crds", resource)
}

// await waits until all informers are synced, except those of optional resources. It returns false if ctx ends first.
func (c *customInformers) await(ctx context.Context) bool {
	for _, ok := range c.WaitForCacheSync(ctx.Done()) {
		if !ok {
			return false
		}
	}
	return true
}

// explain returns the reason why the informers are not ready: a definition that is missing, or else the given one.
func (c *customInformers) explain(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	needed := slices.IndexFunc(c.missing, func(r schema.GroupResource) bool { return !isOptional(r.Group) })
	if err == nil || needed < 0 {
		return err
	}
	return errors.New(missingDefinition(c.missing[needed]))
}
