package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamiclister"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/internal/pages"
)

// customInformers are informers of untyped objects. They implement dynamicinformer.DynamicSharedInformerFactory with informers
// that list page by page.
type customInformers struct {
	client dynamic.Interface
	// optional means that a missing definition is no error: until it is applied, its informer is synced and has no object.
	// Otherwise a process whose cluster lacks a definition says so and is not ready, and becomes ready when it is applied. Informers
	// ask again at least every minute.
	optional bool
	tasks    sync.WaitGroup

	mu        sync.Mutex
	informers map[schema.GroupVersionResource]*customInformer
	ended     bool
	missing   []schema.GroupResource
}

// customInformer implements informers.GenericInformer.
type customInformer struct {
	cache.SharedIndexInformer

	gvr     schema.GroupVersionResource
	started bool
}

// Informer implements informers.GenericInformer.
func (i *customInformer) Informer() cache.SharedIndexInformer { return i.SharedIndexInformer }

// Lister implements informers.GenericInformer.
func (i *customInformer) Lister() cache.GenericLister {
	return dynamiclister.NewRuntimeObjectShim(dynamiclister.New(i.GetIndexer(), i.gvr))
}

// newCustomInformers returns informers of resources that the CustomResourceDefinitions of the installer define.
func newCustomInformers(client dynamic.Interface) *customInformers {
	return &customInformers{client: client, informers: map[schema.GroupVersionResource]*customInformer{}}
}

// newOptionalInformers returns informers of resources whose definitions may be missing.
func newOptionalInformers(client dynamic.Interface) *customInformers {
	c := newCustomInformers(client)
	c.optional = true
	return c
}

// ForResource implements dynamicinformer.DynamicSharedInformerFactory. Plugins call it before the informers start.
func (c *customInformers) ForResource(gvr schema.GroupVersionResource) informers.GenericInformer {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, ok := c.informers[gvr]
	if !ok {
		i = &customInformer{SharedIndexInformer: c.newInformer(gvr), gvr: gvr}
		c.informers[gvr] = i
	}
	return i
}

func (c *customInformers) newInformer(gvr schema.GroupVersionResource) cache.SharedIndexInformer {
	var client pages.Client[*unstructured.UnstructuredList] = c.client.Resource(gvr)
	if c.optional {
		client = tolerantClient{client}
	}
	informer := pages.NewInformer(client, gvr.String())
	err := informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		if !apierrors.IsNotFound(err) {
			cache.DefaultWatchErrorHandler(ctx, r, err)
			return
		}
		if !c.optional && c.lacks(gvr.GroupResource()) {
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
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, i := range c.informers {
		if !i.started && !c.ended {
			i.started = true
			c.tasks.Go(func() { i.Run(stop) })
		}
	}
}

// WaitForCacheSync implements dynamicinformer.DynamicSharedInformerFactory.
func (c *customInformers) WaitForCacheSync(stop <-chan struct{}) map[schema.GroupVersionResource]bool {
	c.mu.Lock()
	known := maps.Clone(c.informers)
	maps.DeleteFunc(known, func(_ schema.GroupVersionResource, i *customInformer) bool { return !i.started })
	c.mu.Unlock()
	out := map[schema.GroupVersionResource]bool{}
	for gvr, i := range known {
		out[gvr] = cache.WaitForCacheSync(stop, i.HasSynced)
	}
	return out
}

// Shutdown implements dynamicinformer.DynamicSharedInformerFactory.
func (c *customInformers) Shutdown() {
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	c.tasks.Wait()
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

// await waits until all informers are synced. It returns false if ctx ends first.
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
	if err == nil || len(c.missing) == 0 {
		return err
	}
	return errors.New(missingDefinition(c.missing[0]))
}

// tolerantClient lists no object of a resource that the API server does not serve.
type tolerantClient struct {
	pages.Client[*unstructured.UnstructuredList]
}

// List implements pages.Client.
func (c tolerantClient) List(ctx context.Context, options metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	list, err := c.Client.List(ctx, options)
	// Within a list it would end the list, without the objects of the other pages.
	if apierrors.IsNotFound(err) && options.Continue == "" {
		return &unstructured.UnstructuredList{}, nil
	}
	return list, err
}
