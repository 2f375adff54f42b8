// Package workload computes the usage of workloads: of all pods of a Deployment, a Job or a custom resource, under the
// names of a ResourceQuota.
package workload

import (
	"errors"
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/component-base/featuregate"
	"k8s.io/utils/clock"

	"github.com/postern-dev/postern/internal/kinds/podusage"
)

// Kind describes a kind of workload.
type Kind struct {
	schema.GroupVersionResource

	// Kind is the name of the kind in owner references.
	Kind string
	// Scale is the path of the field that the subresource scale sets, such as spec.replicas. It is empty for a kind
	// without the subresource.
	Scale string
	// Custom describes where a custom resource has its pods. It is nil for a kind of k8s.io/api.
	Custom *Custom
}

// Settings selects how to measure kinds for which more than one way is useful.
type Settings struct {
	// CountSurge adds the pods of a rolling update to the usage of a Deployment.
	CountSurge bool
	// DaemonSetNodes is the number of pods of each DaemonSet. 0 excludes DaemonSets and their pods.
	DaemonSetNodes int64
}

// Kinds is the set of counted kinds.
type Kinds struct {
	settings Settings
	gates    featuregate.FeatureGate
	clock    clock.PassiveClock
	kinds    []Kind
}

// New returns the counted kinds of k8s.io/api and the custom kinds.
func New(settings Settings, gates featuregate.FeatureGate, c clock.PassiveClock, custom ...Kind) *Kinds {
	return &Kinds{settings: settings, gates: gates, clock: c, kinds: append(builtin(), custom...)}
}

func builtin() []Kind {
	kind := func(group, resource, kind, scale string) Kind {
		return Kind{GroupVersionResource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}, Kind: kind, Scale: scale}
	}
	return []Kind{
		kind("apps", "deployments", "Deployment", "spec.replicas"), kind("apps", "statefulsets", "StatefulSet", "spec.replicas"),
		kind("apps", "replicasets", "ReplicaSet", "spec.replicas"), kind("apps", "daemonsets", "DaemonSet", ""),
		kind("batch", "jobs", "Job", ""), kind("batch", "cronjobs", "CronJob", ""), kind("", "pods", "Pod", ""),
	}
}

// All returns all kinds.
func (k *Kinds) All() []Kind { return k.kinds }

// Find returns the kind of a resource, or nil if the resource is not counted.
func (k *Kinds) Find(gr schema.GroupResource) *Kind {
	i := slices.IndexFunc(k.kinds, func(kind Kind) bool { return kind.GroupResource() == gr })
	if i < 0 {
		return nil
	}
	return &k.kinds[i]
}

// Owner returns the controller of an object and its kind, or nil if that kind is not counted.
func (k *Kinds) Owner(obj metav1.Object) (*metav1.OwnerReference, *Kind) {
	owner := metav1.GetControllerOfNoCopy(obj)
	if owner == nil {
		return nil, nil
	}
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return nil, nil
	}
	i := slices.IndexFunc(k.kinds, func(kind Kind) bool { return kind.Group == gv.Group && kind.Kind == owner.Kind })
	if i < 0 || k.kinds[i].Resource == "pods" {
		return nil, nil
	}
	return owner, &k.kinds[i]
}

// Workload is the usage of one object.
type Workload struct {
	// Usage is the sum over all pods, plus 1 for count/<resource>.
	Usage corev1.ResourceList
	// Run is the future usage of objects that this object creates and that are counted separately, such as the Jobs of
	// a CronJob.
	Run corev1.ResourceList
	// Spare is the additional usage of the pods of a rolling update, if they are not counted.
	Spare corev1.ResourceList
	// Covers is true if Usage includes the pods and other dependents of the object, which are then not counted
	// separately.
	Covers bool
	// Fixed is true if the dependents of the object are not counted even if they use more than Usage.
	Fixed bool

	parts []part
	gates featuregate.FeatureGate
}

// part is a group of equal pods.
type part struct {
	pods int64
	pod  *corev1.Pod
}

// Pods returns the number of pods, or the largest int64 if there are more.
func (w *Workload) Pods() int64 {
	var n int64
	for _, p := range w.parts {
		if p.pods > math.MaxInt64-n {
			return math.MaxInt64
		}
		n += max(p.pods, 0)
	}
	return n
}

// Check returns an error that lists the containers that do not set a required resource.
func (w *Workload) Check(required []corev1.ResourceName) error {
	for _, p := range w.parts {
		if err := podusage.Check(p.pod, required, w.gates); err != nil {
			return err
		}
	}
	return nil
}

// ErrUnreadable is returned for an object that lacks the fields of its kind.
var ErrUnreadable = errors.New("the workload cannot be measured")

// Measure returns the usage of an object. It returns ErrUnreadable for a custom resource without the configured fields.
func (k *Kinds) Measure(kind *Kind, obj runtime.Object) (*Workload, error) {
	var c content
	var err error
	switch u, ok := obj.(*unstructured.Unstructured); {
	case kind.Custom != nil && !ok:
		return nil, fmt.Errorf("%w: got a %T", ErrUnreadable, obj)
	case kind.Custom != nil:
		c.covers = true
		c.parts, err = kind.Custom.parts(u.Object)
	case ok:
		var typed runtime.Object
		if typed, err = typedOf(kind, u); err == nil {
			c, err = k.contentOf(typed)
		}
	default:
		c, err = k.contentOf(obj)
	}
	if err != nil {
		return nil, err
	}
	w := &Workload{
		Usage: k.sum(c.parts), Run: k.sum(c.run), Spare: k.sum(c.spare), Covers: c.covers, Fixed: c.fixed,
		parts: append(c.parts, c.run...), gates: k.gates,
	}
	one := generic.ObjectCountQuotaResourceNameFor(kind.GroupResource())
	if _, ok := w.Usage[one]; !ok {
		w.Usage[one] = *resource.NewQuantity(1, resource.DecimalSI)
	}
	return w, nil
}

// sum returns the usage of all pods. API servers do not validate the templates of custom resources. A pod with a
// negative request is never created, so a negative request must not reduce the sum.
func (k *Kinds) sum(parts []part) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, p := range parts {
		if p.pods <= 0 {
			continue
		}
		for name, q := range podusage.Of(p.pod, k.gates, k.clock) {
			if q.Sign() < 0 {
				continue
			}
			product := q.DeepCopy()
			product.Mul(p.pods)
			total := out[name]
			total.Add(product)
			out[name] = total
		}
	}
	return out
}
