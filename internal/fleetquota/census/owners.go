package census

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/postern-dev/postern/internal/fleetquota/workload"
	"github.com/postern-dev/postern/internal/names"
	"github.com/postern-dev/postern/internal/reads"
	quotav1alpha1 "github.com/postern-dev/postern/pkg/apis/quota/v1alpha1"
)

// coveredBy returns the owner whose usage includes the usage of the entry, or nil.
func (c *Census) coveredBy(e *entry) *entry {
	if e.owner == nil {
		return nil
	}
	if owner := c.known(e.ownerKind, e.Namespace, e.owner); owner != nil && owner.covers {
		return owner
	}
	return nil
}

// known returns an owner from the cache, or nil.
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

// Covers reports whether the owner of an object exists and its usage includes that of the object. Covers reads an owner
// that is not in the cache from the API server.
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

// measured reports whether the usage of an object includes that of its dependents.
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

// Keeps reports whether an owner, or an owner of the owner, includes the usage of its dependents and is not being
// deleted. If an owner is deleted, its dependents replace it, unless its own owner creates another one. Keeps reads
// owners from the API server, because a cache may lag behind.
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

// Live reads an object from the API server, and returns nil if the object does not exist.
func (c *Census) Live(ctx context.Context, kind *workload.Kind, namespace, name string) (*unstructured.Unstructured, error) {
	if !names.CanExist(name) {
		return nil, nil // That there is none is an answer.
	}
	u, err := c.client.Resource(kind.GroupVersionResource).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil // That there is none is an answer.
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s %s/%s: %w", kind.Resource, namespace, name, err)
	}
	return u, nil
}

// Stored implements ledger.Workloads.
func (c *Census) Stored(ctx context.Context, p *quotav1alpha1.Pending) (types.UID, string, error) {
	if !names.CanExist(p.Name) {
		return "", "", nil
	}
	ctx, end := reads.Scope(ctx)
	defer end()
	gvr := schema.GroupVersionResource{Group: p.Group, Version: p.Version, Resource: p.Resource}
	found, err := c.metadata.Resource(gvr).Namespace(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", "", nil
	}
	if err != nil {
		return "", "", fmt.Errorf("reading the metadata of %s %s/%s: %w", p.Resource, p.Namespace, p.Name, err)
	}
	return found.UID, found.ResourceVersion, nil
}
