// Package census computes the usage of the workloads of a cluster from caches that store only the fields that it needs.
package census

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/client-go/dynamic"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/postern-dev/postern/internal/fleetquota/ledger"
	"github.com/postern-dev/postern/internal/fleetquota/workload"
	"github.com/postern-dev/postern/pkg/admit"
	quotav1alpha1 "github.com/postern-dev/postern/pkg/apis/quota/v1alpha1"
)

// Census holds the caches of all counted kinds.
type Census struct {
	kinds      *workload.Kinds
	namespaces corev1listers.NamespaceLister
	spaces     cache.SharedIndexInformer
	client     dynamic.Interface
	metadata   metadata.Interface
	clock      clock.PassiveClock
	caches     map[schema.GroupResource]cache.SharedIndexInformer
}

// New requests an informer for each kind. A custom kind whose definition is missing has an empty cache.
func New(d admit.Deps, kinds *workload.Kinds) (*Census, error) {
	c := &Census{
		kinds: kinds, client: d.Dynamic, metadata: d.Metadata, clock: d.Clock,
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
			// This is the declared usage: a request that enlarged the object was charged the difference to it.
			found := ledger.Counted{ResourceVersion: e.ResourceVersion}
			if in && c.coveredBy(e) == nil {
				found.Usage = e.masked(limited)
			}
			out.Objects[e.UID] = found
		}
	}
	out.Total = newTally(spec.Hard).sum(counted, c.coveredBy)
	out.To = c.versions()
	return out, true
}

// versions returns the resource versions of the caches, including the cache of namespaces, whose labels quotas select.
// The cache of a missing kind has no version.
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

// Selects reports whether a quota covers a namespace. It returns true for a namespace that is not in the cache: the
// cache lags behind an object in that namespace, and a count must not omit the object.
func (c *Census) Selects(selector *metav1.LabelSelector, namespace string) bool {
	if selector == nil {
		return true
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		// The definition rejects an invalid selector. If one is stored, it must not exempt any namespace.
		return true
	}
	ns, err := c.namespaces.Get(namespace)
	if err != nil {
		return true
	}
	return s.Matches(labels.Set(ns.Labels))
}
