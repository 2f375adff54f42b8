package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// customInformers are informers of resources that the CustomResourceDefinitions of the installer define. A process
// whose cluster lacks one of them says so and is not ready, and becomes ready when it is applied.
type customInformers struct {
	dynamicinformer.DynamicSharedInformerFactory
	// optional means that a missing definition is no error.
	optional bool

	mu      sync.Mutex
	missing []schema.GroupResource
}

func newCustomInformers(client dynamic.Interface) *customInformers {
	return &customInformers{DynamicSharedInformerFactory: dynamicinformer.NewDynamicSharedInformerFactory(client, 0)}
}

// newOptionalInformers returns informers of resources whose definitions may be missing. While a definition is missing,
// its informer is synced and has no object. The informer asks again at least every minute.
func newOptionalInformers(client dynamic.Interface) *customInformers {
	return &customInformers{DynamicSharedInformerFactory: dynamicinformer.NewDynamicSharedInformerFactory(tolerantClient{client}, 0), optional: true}
}

// ForResource implements dynamicinformer.DynamicSharedInformerFactory. Plugins call it before the informers start.
func (c *customInformers) ForResource(gvr schema.GroupVersionResource) informers.GenericInformer {
	informer := c.DynamicSharedInformerFactory.ForResource(gvr)
	err := informer.Informer().SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
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
type tolerantClient struct{ dynamic.Interface }

// IsWatchListSemanticsUnSupported makes informers list before they watch.
func (tolerantClient) IsWatchListSemanticsUnSupported() bool { return true }

// Resource implements dynamic.Interface.
func (c tolerantClient) Resource(gvr schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return tolerantResource{c.Interface.Resource(gvr)}
}

type tolerantResource struct {
	dynamic.NamespaceableResourceInterface
}

// Namespace implements dynamic.NamespaceableResourceInterface. Informers of all namespaces pass an empty name.
func (r tolerantResource) Namespace(name string) dynamic.ResourceInterface {
	if name == "" {
		return r
	}
	return r.NamespaceableResourceInterface.Namespace(name)
}

// List implements dynamic.ResourceInterface.
func (r tolerantResource) List(ctx context.Context, opts metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	list, err := r.NamespaceableResourceInterface.List(ctx, opts)
	if apierrors.IsNotFound(err) {
		return &unstructured.UnstructuredList{}, nil
	}
	return list, err
}
