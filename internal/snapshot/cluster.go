// Package snapshot is a cluster that consists of objects in files. Its clients read the objects, its informers have them without
// a watch, and its authorizer answers reviews. Nothing is written.
//
// A cluster in files is seldom complete. An object that a plugin looks up and that is not there may exist in the real cluster.
// The plugin then gets an object that has only its name, so that the decision goes on, and the reader is told: see WithReport.
package snapshot

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/dynamic/dynamicinformer"

	"github.com/postern-dev/postern/internal/defaults"
	"github.com/postern-dev/postern/internal/objects"
	"github.com/postern-dev/postern/internal/resources"
)

// Cluster is a cluster of objects in files. Its methods may be called by several goroutines.
type Cluster struct {
	definitions resources.Definitions
	mapper      meta.RESTMapper
	caches      caches

	mu sync.RWMutex
	// objects are the objects of a resource, as JSON: there may be many.
	objects map[schema.GroupVersionResource]map[types.NamespacedName]json.RawMessage
	// complete are the resources of which the cluster has all objects.
	complete map[schema.GroupVersionResource]bool
	// later are objects that do not exist yet.
	later map[schema.GroupVersionResource]map[types.NamespacedName]bool
	// namespaces are those with objects at the start, as far as namespaces and service accounts tell.
	namespaces map[string]bool
	// assumed are the resources of which all objects were read, although the cluster may lack some.
	assumed map[schema.GroupResource]bool
	// defaultNamespaces are those that every cluster has and no file. assumedNamespaces are those of them and of others that no file
	// has, for which objects were reviewed. assumedAccounts are the namespaces whose service account default was made up.
	defaultNamespaces, assumedNamespaces, assumedAccounts map[string]bool
}

// New returns a cluster that serves the kinds of k8s.io/api and the defined kinds.
func New(definitions resources.Definitions) *Cluster {
	c := &Cluster{
		definitions: definitions, mapper: definitions.Mapper(),
		objects:  map[schema.GroupVersionResource]map[types.NamespacedName]json.RawMessage{},
		complete: map[schema.GroupVersionResource]bool{}, later: map[schema.GroupVersionResource]map[types.NamespacedName]bool{},
		assumed: map[schema.GroupResource]bool{}, assumedNamespaces: map[string]bool{}, defaultNamespaces: map[string]bool{}, assumedAccounts: map[string]bool{},
	}
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease} {
		_ = c.MakeNamespace(name) // It is of a known kind, as the following ones.
		c.defaultNamespaces[name] = true
	}
	for name, value := range map[string]int32{"system-node-critical": 2000001000, "system-cluster-critical": 2000000000} {
		_ = c.make(schedulingv1.SchemeGroupVersion.WithKind("PriorityClass"), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value})
	}
	return c
}

// Mapper returns a mapper for the kinds that the cluster serves.
func (c *Cluster) Mapper() meta.RESTMapper { return c.mapper }

// Resource returns the resource of a kind, and whether its objects have a namespace.
func (c *Cluster) Resource(kind schema.GroupVersionKind) (resource schema.GroupVersionResource, namespaced bool, err error) {
	m, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return resource, false, err
	}
	return m.Resource, m.Scope.Name() == meta.RESTScopeNameNamespace, nil
}

// Add adds an object, which is JSON, or replaces the one with the same name. The object is stored as an API server does: with defaults,
// with a uid, and without fields that its type does not have. Add returns the uid. An error says that it is of another type than its
// kind.
func (c *Cluster) Add(kind schema.GroupVersionKind, raw []byte) (types.UID, error) {
	obj, err := objects.Decode(raw, metav1.GroupVersionKind(kind))
	if err != nil {
		return "", err
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return "", err
	}
	if m.GetUID() == "" {
		m.SetUID(uuid.NewUUID())
	}
	if _, namespaced, err := c.Resource(kind); err != nil {
		return "", err
	} else if !namespaced {
		m.SetNamespace("")
	}
	if u, custom := obj.(*unstructured.Unstructured); custom {
		// An API server serves a custom object in all versions of its kind.
		for _, version := range c.definitions.Versions(u) {
			if err := c.store(version.GroupVersionKind(), m, version); err != nil {
				return "", err
			}
		}
		return m.GetUID(), nil
	}
	obj.GetObjectKind().SetGroupVersionKind(kind)
	defaults.Set(obj)
	settle(obj)
	return m.GetUID(), c.store(kind, m, obj)
}

// store stores an object of one version.
func (c *Cluster) store(kind schema.GroupVersionKind, m metav1.Object, obj any) error {
	resource, _, err := c.Resource(kind)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(obj)
	if err != nil {
		return err
	}
	name := types.NamespacedName{Namespace: m.GetNamespace(), Name: m.GetName()}
	c.mu.Lock()
	if c.objects[resource] == nil {
		c.objects[resource] = map[types.NamespacedName]json.RawMessage{}
	}
	c.objects[resource][name] = raw
	delete(c.later[resource], name)
	if kind == namespaceKind {
		delete(c.defaultNamespaces, m.GetName())
		delete(c.assumedNamespaces, m.GetName())
	}
	c.mu.Unlock()
	return c.caches.add(resource, raw)
}

// make adds an object that no file has.
func (c *Cluster) make(kind schema.GroupVersionKind, obj any) error {
	raw, err := json.Marshal(obj)
	if err != nil {
		return err
	}
	_, err = c.Add(kind, raw)
	return err
}

var (
	namespaceKind        = corev1.SchemeGroupVersion.WithKind("Namespace")
	namespaces, accounts = corev1.SchemeGroupVersion.WithResource("namespaces"), corev1.SchemeGroupVersion.WithResource("serviceaccounts")
)

// settle adds what controllers and the API server add to an object.
func settle(obj runtime.Object) {
	switch o := obj.(type) {
	case *corev1.Namespace:
		if o.Labels == nil {
			o.Labels = map[string]string{}
		}
		o.Labels[corev1.LabelMetadataName] = o.Name
		o.Status.Phase = cmp.Or(o.Status.Phase, corev1.NamespaceActive)
	case *corev1.ResourceQuota:
		used := o.Status.Used
		o.Status = corev1.ResourceQuotaStatus{Hard: o.Spec.Hard, Used: corev1.ResourceList{}}
		for name := range o.Spec.Hard {
			o.Status.Used[name] = used[name]
		}
	}
}

// Expect says that an object is added later: until then it does not exist.
func (c *Cluster) Expect(u *unstructured.Unstructured) error {
	resource, _, err := c.Resource(u.GroupVersionKind())
	if err != nil || u.GetName() == "" {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.later[resource] == nil {
		c.later[resource] = map[types.NamespacedName]bool{}
	}
	c.later[resource][types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()}] = true
	return nil
}

// Complete says that the cluster has all objects of a kind: another one does not exist.
func (c *Cluster) Complete(kind schema.GroupVersionKind) error {
	of := &unstructured.Unstructured{Object: map[string]any{}}
	of.SetGroupVersionKind(kind)
	for _, u := range c.definitions.Versions(of) {
		resource, _, err := c.Resource(u.GroupVersionKind())
		if err != nil {
			return err
		}
		c.mu.Lock()
		c.complete[resource] = true
		c.mu.Unlock()
	}
	return nil
}

// Get returns the JSON of an object that the cluster has now, or nil.
func (c *Cluster) Get(kind schema.GroupVersionKind, namespace, name string) []byte {
	resource, _, err := c.Resource(kind)
	if err != nil {
		return nil
	}
	raw, _ := c.get(resource, namespace, name)
	return raw
}

// get returns an object of the cluster. If the cluster cannot say whether it exists, known is false.
func (c *Cluster) get(resource schema.GroupVersionResource, namespace, name string) (raw json.RawMessage, known bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	key := types.NamespacedName{Namespace: namespace, Name: name}
	if raw, ok := c.objects[resource][key]; ok {
		return raw, true
	}
	return nil, c.complete[resource] || c.later[resource][key]
}

// list returns the objects of a resource in a namespace, or of all namespaces, in the order of an API server.
func (c *Cluster) list(resource schema.GroupVersionResource, namespace string) []json.RawMessage {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.complete[resource] && !slices.Contains(namedOnly, resource.GroupResource().String()) {
		c.assumed[resource.GroupResource()] = true
	}
	of := c.objects[resource]
	names := slices.SortedFunc(maps.Keys(of), func(a, b types.NamespacedName) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	var out []json.RawMessage
	for _, name := range names {
		if namespace == "" || name.Namespace == namespace {
			out = append(out, of[name])
		}
	}
	return out
}

// Assumed returns the resources of which plugins read all objects, and of which the cluster may not have all.
func (c *Cluster) Assumed() []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var out []string
	for resource := range c.assumed {
		out = append(out, resource.String())
	}
	slices.Sort(out)
	return out
}

// Informers returns the informers of untyped objects, which Start fills.
func (c *Cluster) Informers() dynamicinformer.DynamicSharedInformerFactory { return &c.caches }

// AssumeNamespace adds a namespace without labels and annotations, unless it is known whether it exists.
func (c *Cluster) AssumeNamespace(name string) error {
	raw, known := c.get(namespaces, "", name)
	if name == "" || known && !c.isDefault(name) {
		return nil
	}
	if raw == nil {
		if err := c.MakeNamespace(name); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.assumedNamespaces[name] = true
	return nil
}

func (c *Cluster) isDefault(namespace string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.defaultNamespaces[namespace]
}

// MakeNamespace adds a namespace without labels and annotations.
func (c *Cluster) MakeNamespace(name string) error {
	return c.make(namespaceKind, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// LacksNamespace reports whether a namespace does not exist.
func (c *Cluster) LacksNamespace(name string) bool {
	u, known := c.get(namespaces, "", name)
	return name != "" && u == nil && known
}

// NamespaceLabels returns the labels of a namespace, or a NotFound error.
func (c *Cluster) NamespaceLabels(name string) (labels.Set, error) {
	raw, _ := c.get(namespaces, "", name)
	if raw == nil {
		return nil, apierrors.NewNotFound(namespaces.GroupResource(), name)
	}
	var ns metav1.PartialObjectMetadata
	err := json.Unmarshal(raw, &ns)
	return ns.Labels, err
}

// AssumedNamespaces returns the namespaces of AssumeNamespace whose labels and annotations are not known.
func (c *Cluster) AssumedNamespaces() []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Sorted(maps.Keys(c.assumedNamespaces))
}

// AssumedAccounts returns the namespaces whose service account default was made up for a plugin.
func (c *Cluster) AssumedAccounts() []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Sorted(maps.Keys(c.assumedAccounts))
}

// had reports whether the cluster had a namespace at the start.
func (c *Cluster) had(namespace string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.namespaces[namespace]
}

// begin notes which namespaces there are.
func (c *Cluster) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.namespaces = map[string]bool{}
	for n := range c.objects[namespaces] {
		c.namespaces[n.Name] = !c.defaultNamespaces[n.Name]
	}
	for account := range c.objects[accounts] {
		c.namespaces[account.Namespace] = true
	}
}

// HasAny reports whether the cluster has an object of a kind.
func (c *Cluster) HasAny(kind schema.GroupVersionKind) bool {
	resource, _, err := c.Resource(kind)
	c.mu.RLock()
	defer c.mu.RUnlock()
	return err == nil && len(c.objects[resource]) > 0
}
