package snapshot

import (
	"context"
	"encoding/json"
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamiclister"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
	kjson "sigs.k8s.io/json"
)

// caches are the informers of plugins. Their watches tell nothing: the cluster adds objects to their stores, so that a plugin sees an
// object as soon as it is added. It implements dynamicinformer.DynamicSharedInformerFactory for the untyped objects, whose informers
// do not list either.
type caches struct {
	mu sync.Mutex
	// custom are the informers of untyped objects, and stores those of all objects.
	custom map[schema.GroupVersionResource]*informer
	stores map[schema.GroupVersionResource]store
}

// store has the objects of an informer, in the form that its plugin wants.
type store struct {
	cache.Store

	form func(json.RawMessage) (any, error)
}

func (s store) add(raw json.RawMessage) error {
	obj, err := s.form(raw)
	if err != nil {
		return err
	}
	return s.Add(obj)
}

// add adds an object to the informer of its resource, if there is one.
func (c *caches) add(resource schema.GroupVersionResource, raw json.RawMessage) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s, ok := c.stores[resource]; ok {
		return s.add(raw)
	}
	return nil
}

// Start fills the informers that plugins requested. An object that is added later is in them as soon as Add returns. typed is the
// factory of the typed informers, whose client is one for Config; they end with ctx.
func (c *Cluster) Start(ctx context.Context, typed informers.SharedInformerFactory) error {
	c.begin()
	stores := map[schema.GroupVersionResource]store{}
	typed.StartWithContext(ctx)
	for kind, synced := range typed.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return ctx.Err()
		}
		resource, s, err := c.typedStore(typed, kind)
		if err != nil {
			return err
		}
		stores[resource] = s
	}
	c.caches.mu.Lock()
	defer c.caches.mu.Unlock()
	for resource, i := range c.caches.custom {
		stores[resource] = store{i.GetStore(), i.form}
		for _, raw := range c.list(resource, "") {
			if err := stores[resource].add(raw); err != nil {
				return err
			}
		}
	}
	c.caches.stores = stores
	return nil
}

// typedStore returns the store of the informer for a type.
func (c *Cluster) typedStore(typed informers.SharedInformerFactory, kind reflect.Type) (schema.GroupVersionResource, store, error) {
	fresh := func() runtime.Object {
		obj, _ := reflect.TypeAssert[runtime.Object](reflect.New(kind.Elem()))
		return obj
	}
	kinds, _, err := scheme.Scheme.ObjectKinds(fresh())
	if err != nil {
		return schema.GroupVersionResource{}, store{}, err
	}
	resource, _, err := c.Resource(kinds[0])
	if err != nil {
		return resource, store{}, err
	}
	// It exists. ForResource would do the same, and make the program 6 MB larger.
	informer := typed.InformerFor(fresh(), nil)
	return resource, store{informer.GetStore(), func(raw json.RawMessage) (any, error) {
		obj := fresh()
		return obj, kjson.UnmarshalCaseSensitivePreserveInts(raw, obj)
	}}, nil
}

// informer is the informer of an untyped resource.
type informer struct {
	cache.SharedIndexInformer

	resource  schema.GroupVersionResource
	transform cache.TransformFunc
}

// form returns an object as the plugin wants it.
func (i *informer) form(raw json.RawMessage) (any, error) {
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(raw); err != nil || i.transform == nil {
		return u, err
	}
	return i.transform(u)
}

// SetTransform implements cache.SharedInformer.
func (i *informer) SetTransform(f cache.TransformFunc) error {
	i.transform = f
	return nil
}

// HasSynced implements cache.SharedInformer.
func (*informer) HasSynced() bool { return true }

// Informer implements informers.GenericInformer.
func (i *informer) Informer() cache.SharedIndexInformer { return i }

// Lister implements informers.GenericInformer.
func (i *informer) Lister() cache.GenericLister {
	return dynamiclister.NewRuntimeObjectShim(dynamiclister.New(i.GetIndexer(), i.resource))
}

// ForResource implements dynamicinformer.DynamicSharedInformerFactory.
func (c *caches) ForResource(resource schema.GroupVersionResource) informers.GenericInformer {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i, ok := c.custom[resource]; ok {
		return i
	}
	i := &informer{
		SharedIndexInformer: cache.NewSharedIndexInformer(&cache.ListWatch{}, &unstructured.Unstructured{}, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}),
		resource:            resource,
	}
	if c.custom == nil {
		c.custom = map[schema.GroupVersionResource]*informer{}
	}
	c.custom[resource] = i
	return i
}

// Start implements dynamicinformer.DynamicSharedInformerFactory.
func (*caches) Start(<-chan struct{}) {}

// WaitForCacheSync implements dynamicinformer.DynamicSharedInformerFactory.
func (c *caches) WaitForCacheSync(<-chan struct{}) map[schema.GroupVersionResource]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[schema.GroupVersionResource]bool{}
	for resource := range c.custom {
		out[resource] = true
	}
	return out
}

// Shutdown implements dynamicinformer.DynamicSharedInformerFactory.
func (*caches) Shutdown() {}

// namedOnly are the resources of which plugins look up single objects, and never read all.
var namedOnly = []string{"namespaces", "serviceaccounts", "runtimeclasses.node.k8s.io"}
