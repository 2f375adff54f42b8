// Package census counts the workloads of a cluster, from caches that hold only what they use.
package census

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/client-go/dynamic"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/postern-dev/postern/pkg/admissions/admit"
	"github.com/postern-dev/postern/pkg/admissions/fleetquota/ledger"
	"github.com/postern-dev/postern/pkg/admissions/fleetquota/workload"
	quotav1alpha1 "github.com/postern-dev/postern/pkg/apis/quota/v1alpha1"
)

// entry is what a cache holds of an object.
type entry struct {
	metav1.ObjectMeta

	kind *workload.Kind
	// usage, spare, covers and fixed are those of a workload.Workload.
	usage, spare  corev1.ResourceList
	covers, fixed bool
	// ends is when a pod that is being deleted should be gone. It uses nothing from then on.
	ends time.Time
	// owner is the controller of the object, if its kind is counted.
	owner     *metav1.OwnerReference
	ownerKind *workload.Kind
}

// Census has the caches of all counted kinds.
type Census struct {
	kinds      *workload.Kinds
	namespaces corev1listers.NamespaceLister
	spaces     cache.SharedIndexInformer
	client     dynamic.Interface
	clock      clock.PassiveClock
	caches     map[schema.GroupResource]cache.SharedIndexInformer
}

// New requests an informer for each kind. Custom kinds may have no definition in the cluster.
func New(d admit.Deps, kinds *workload.Kinds) (*Census, error) {
	c := &Census{
		kinds: kinds, client: d.Dynamic, clock: d.Clock,
		namespaces: d.Informers.Core().V1().Namespaces().Lister(), spaces: d.Informers.Core().V1().Namespaces().Informer(),
		caches: map[schema.GroupResource]cache.SharedIndexInformer{},
	}
	for i := range kinds.All() {
		kind := &kinds.All()[i]
		factory := d.CustomInformers
		if kind.Custom != nil {
			factory = d.OptionalInformers
		}
		informer := factory.ForResource(kind.GroupVersionResource).Informer()
		if err := informer.SetTransform(c.transform(kind)); err != nil {
			return nil, fmt.Errorf("watching %s: %w", kind.GroupResource(), err)
		}
		c.caches[kind.GroupResource()] = informer
	}
	return c, nil
}

// transform makes an entry of an object. An object that cannot be measured uses nothing: the API server stored it before
// the quota, and its controller cannot read it either.
func (c *Census) transform(kind *workload.Kind) cache.TransformFunc {
	return func(obj any) (any, error) {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return obj, nil
		}
		e := &entry{kind: kind, ObjectMeta: metav1.ObjectMeta{
			Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(),
		}}
		e.owner, e.ownerKind = c.kinds.Owner(u)
		if w, err := c.kinds.Measure(kind, u); err == nil {
			e.usage, e.spare, e.covers, e.fixed = w.Usage, w.Spare, w.Covers, w.Fixed
		}
		if grace := u.GetDeletionGracePeriodSeconds(); grace != nil && u.GetDeletionTimestamp() != nil && kind.Resource == "pods" {
			e.ends = u.GetDeletionTimestamp().Add(time.Duration(*grace) * time.Second)
		}
		return e, nil
	}
}

// Synced reports whether all caches are filled.
func (c *Census) Synced() bool {
	for _, informer := range c.caches {
		if !informer.HasSynced() {
			return false
		}
	}
	return c.spaces.HasSynced()
}

// Count implements ledger.Workloads.
func (c *Census) Count(spec *quotav1alpha1.FleetAllowanceSpec, asked map[types.UID]bool) (ledger.Count, bool) {
	if !c.Synced() {
		return ledger.Count{}, false
	}
	out := ledger.Count{Total: corev1.ResourceList{}, Objects: map[types.UID]ledger.Counted{}, From: c.versions()}
	inside := map[string]bool{}
	limited := quota.ResourceNames(spec.Hard)
	now := c.clock.Now()
	var counted []*entry
	for _, informer := range c.caches {
		for _, obj := range informer.GetStore().List() {
			e, ok := obj.(*entry)
			if !ok {
				return ledger.Count{}, false
			}
			in, known := inside[e.Namespace]
			if !known {
				in = c.Selects(spec.Namespaces, e.Namespace)
				inside[e.Namespace] = in
			}
			if !e.ends.IsZero() && now.After(e.ends) {
				e = e.ended()
			}
			if in {
				counted = append(counted, e)
			}
			if !asked[e.UID] {
				continue
			}
			// What the object declares: a request that enlarges it was charged the difference to that.
			found := ledger.Counted{ResourceVersion: e.ResourceVersion}
			if in && c.coveredBy(e) == nil {
				found.Usage = quota.Mask(e.usage, limited)
			}
			out.Objects[e.UID] = found
		}
	}
	out.Total = newTally(spec.Hard).sum(counted, c.coveredBy)
	out.To = c.versions()
	return out, true
}

// ended returns the entry of a pod that should be gone, for example because its node is lost. Only the object counts.
func (e *entry) ended() *entry {
	out := *e
	name := generic.ObjectCountQuotaResourceNameFor(e.kind.GroupResource())
	out.usage = quota.Mask(e.usage, []corev1.ResourceName{name})
	return &out
}

// versions returns the resource versions of the caches, also that of the namespaces, whose labels quotas select. A cache of a kind that the cluster does not have has none.
func (c *Census) versions() map[string]string {
	out := map[string]string{}
	for gr, informer := range c.caches {
		if v := informer.GetStore().LastStoreSyncResourceVersion(); v != "" {
			out[gr.String()] = v
		}
	}
	if v := c.spaces.GetStore().LastStoreSyncResourceVersion(); v != "" {
		out["namespaces"] = v
	}
	return out
}

// Selects reports whether a quota covers a namespace. It covers a namespace that the cache does not have: an object of it
// shows that the cache is late, and a count must not lose the object.
func (c *Census) Selects(selector *metav1.LabelSelector, namespace string) bool {
	if selector == nil {
		return true
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		// The definition accepts only valid selectors. Nobody escapes a quota by an invalid one.
		return true
	}
	ns, err := c.namespaces.Get(namespace)
	if err != nil {
		return true
	}
	return s.Matches(labels.Set(ns.Labels))
}

// coveredBy returns the owner of an entry if the usage of the entry is a part of what the owner uses, or nil.
func (c *Census) coveredBy(e *entry) *entry {
	if e.owner == nil {
		return nil
	}
	if owner := c.known(e.ownerKind, e.Namespace, e.owner); owner != nil && owner.covers {
		return owner
	}
	return nil
}

// known returns an owner that the cache has, or nil.
func (c *Census) known(kind *workload.Kind, namespace string, owner *metav1.OwnerReference) *entry {
	obj, ok, err := c.caches[kind.GroupResource()].GetStore().GetByKey(cache.NewObjectName(namespace, owner.Name).String())
	if err != nil || !ok {
		return nil
	}
	e, ok := obj.(*entry)
	if !ok || e.UID != owner.UID {
		return nil
	}
	return e
}

// Covers reports whether the owner of an object exists and covers the object. An owner that is not in the cache is read
// from the API server.
func (c *Census) Covers(ctx context.Context, kind *workload.Kind, namespace string, owner *metav1.OwnerReference) (bool, error) {
	if e := c.known(kind, namespace, owner); e != nil {
		return e.covers, nil
	}
	u, err := c.Live(ctx, kind, namespace, owner.Name)
	if err != nil || u == nil || u.GetUID() != owner.UID {
		return false, err
	}
	return c.measured(kind, u)
}

// measured reports whether an object covers its dependents.
func (c *Census) measured(kind *workload.Kind, u *unstructured.Unstructured) (bool, error) {
	w, err := c.kinds.Measure(kind, u)
	if errors.Is(err, workload.ErrUnreadable) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return w.Covers, nil
}

// Keeps reports whether an owner, or an owner of the owner, covers its dependents and stays. An owner that is deleted
// releases dependents that take its place, unless its own owner makes another one. Owners are read from the API server,
// because a cache may be late.
func (c *Census) Keeps(ctx context.Context, kind *workload.Kind, namespace string, owner *metav1.OwnerReference) (bool, error) {
	for range maxOwners {
		u, err := c.Live(ctx, kind, namespace, owner.Name)
		if err != nil || u == nil || u.GetUID() != owner.UID {
			return false, err
		}
		if covers, err := c.measured(kind, u); err != nil || !covers {
			return false, err
		}
		if u.GetDeletionTimestamp() == nil {
			return true, nil
		}
		if owner, kind = c.kinds.Owner(u); owner == nil {
			return false, nil
		}
	}
	return true, nil
}

// Live reads an object from the API server. It returns nil if there is none.
func (c *Census) Live(ctx context.Context, kind *workload.Kind, namespace, name string) (*unstructured.Unstructured, error) {
	u, err := c.client.Resource(kind.GroupVersionResource).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // that there is none is an answer
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s %s/%s: %w", kind.Resource, namespace, name, err)
	}
	return u, nil
}

// Stored implements ledger.Workloads.
func (c *Census) Stored(ctx context.Context, p *quotav1alpha1.Pending) (types.UID, string, error) {
	gvr := schema.GroupVersionResource{Group: p.Group, Version: p.Version, Resource: p.Resource}
	if p.Name == "" {
		return "", "", nil
	}
	u, err := c.Live(ctx, &workload.Kind{GroupVersionResource: gvr}, p.Namespace, p.Name)
	if err != nil || u == nil {
		return "", "", err
	}
	return u.GetUID(), u.GetResourceVersion(), nil
}
