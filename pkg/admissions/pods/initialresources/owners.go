package initialresources

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/singleflight"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/metadata"

	"github.com/postern-dev/postern/internal/names"
	"github.com/postern-dev/postern/internal/reads"
	"github.com/postern-dev/postern/pkg/admit"
)

const (
	// maxOwners is the number of cached owners, and ownerTTL the time for which an owner is cached. The controller of
	// an object rarely changes.
	maxOwners = 4096
	ownerTTL  = 10 * time.Minute
	// lookupTimeout is the time-out of a live lookup. A lookup continues after the request that started it ends.
	lookupTimeout = 10 * time.Second
)

// owners looks up the workloads that own ReplicaSets and Jobs in the API server. A cache of all ReplicaSets and Jobs
// would be too large for this purpose.
type owners struct {
	client metadata.Interface
	known  *cache.LRUExpireCache
	group  singleflight.Group
}

func newOwners(d admit.Deps) *owners {
	return &owners{client: d.Metadata, known: cache.NewLRUExpireCacheWithClock(maxOwners, d.Clock)}
}

// of returns the controller of a controller, or nil if it has none or has one of another kind.
func (o *owners) of(ctx context.Context, namespace string, controller *metav1.OwnerReference) (*workload, error) {
	resource, ok := resourceOf(workloadOf(controller).kind)
	if !ok || !names.CanExist(controller.Name) {
		return nil, nil
	}
	key := namespace + "/" + controller.Kind + "/" + controller.Name + "/" + string(controller.UID)
	if known, ok := o.known.Get(key); ok {
		w, _ := known.(*workload)
		return w, nil
	}
	answer := o.group.DoChan(key, func() (any, error) {
		ctx, end := reads.Scope(ctx)
		defer end()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupTimeout)
		defer cancel()
		obj, err := o.client.Resource(resource).Namespace(namespace).Get(ctx, controller.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) || (err == nil && obj.GetUID() != controller.UID):
			// Users may write any reference into a pod. The result is not cached, because the size of the reference is
			// not limited.
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("looking up %s %s: %w", controller.Kind, controller.Name, err)
		}
		var found *workload
		if owner := metav1.GetControllerOfNoCopy(obj); owner != nil {
			w := workloadOf(owner)
			found = &w
		}
		o.known.Add(key, found, ownerTTL)
		return found, nil
	})
	select {
	case a := <-answer:
		w, _ := a.Val.(*workload)
		return w, a.Err
	case <-ctx.Done():
		return nil, fmt.Errorf("looking up %s %s: %w", controller.Kind, controller.Name, ctx.Err())
	}
}

// resourceOf returns the resource of a kind, or false for a kind whose objects have no controller.
func resourceOf(kind schema.GroupKind) (schema.GroupVersionResource, bool) {
	switch kind {
	case appsv1.SchemeGroupVersion.WithKind("ReplicaSet").GroupKind():
		return appsv1.SchemeGroupVersion.WithResource("replicasets"), true
	case batchv1.SchemeGroupVersion.WithKind("Job").GroupKind():
		return batchv1.SchemeGroupVersion.WithResource("jobs"), true
	}
	return schema.GroupVersionResource{}, false
}
