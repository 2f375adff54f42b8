package census

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/client-go/tools/cache"

	"github.com/postern-dev/postern/internal/fleetquota/workload"
	"github.com/postern-dev/postern/internal/names"
)

// entry is the cached form of an object.
type entry struct {
	metav1.ObjectMeta

	kind *workload.Kind
	// amounts, covers and fixed are fields of workload.Workload.
	amounts
	covers, fixed bool
	// ends is the time at which a terminating pod should be gone. From then on its usage is zero.
	ends time.Time
	// owner is the controller of the object if its kind is counted, or else nil.
	owner     *metav1.OwnerReference
	ownerKind *workload.Kind
}

// transform returns a function that converts objects into entries. An object that cannot be measured has no usage: it
// was stored before the quota, and its controller cannot read it either.
func (c *Census) transform(kind *workload.Kind) cache.TransformFunc {
	return func(obj any) (any, error) {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return obj, nil
		}
		e := &entry{kind: kind, ObjectMeta: metav1.ObjectMeta{
			Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(),
		}}
		// Users choose the name of an owner. No object has a name that cannot exist.
		if owner, ownerKind := c.kinds.Owner(u); owner != nil && names.CanExist(owner.Name) {
			// A pointer into the list of all owners would keep them.
			e.owner, e.ownerKind = owner.DeepCopy(), ownerKind
		}
		if w, err := c.kinds.Measure(kind, u); err == nil {
			e.amounts, e.covers, e.fixed = newAmounts(w.Usage, w.Spare), w.Covers, w.Fixed
		}
		if grace := u.GetDeletionGracePeriodSeconds(); grace != nil && u.GetDeletionTimestamp() != nil && kind.Resource == "pods" {
			e.ends = u.GetDeletionTimestamp().Add(time.Duration(*grace) * time.Second)
		}
		return e, nil
	}
}

// ended returns the entry of a terminating pod that should be gone, for example because its node is lost. Only the
// object itself is counted.
func (e *entry) ended() *entry {
	out := *e
	name := generic.ObjectCountQuotaResourceNameFor(e.kind.GroupResource())
	out.amounts = amounts{usage: e.masked([]corev1.ResourceName{name})}
	return &out
}
