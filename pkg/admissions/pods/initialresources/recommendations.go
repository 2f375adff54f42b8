package initialresources

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/internal/quantities"
	"github.com/postern-dev/postern/pkg/admissions/pods/initialresources/internal/usage"
	"github.com/postern-dev/postern/pkg/admit"
)

// byTarget is the name of the index of recommendations by their target workload.
const byTarget = "target"

// recommendations is an estimator that uses the VerticalPodAutoscalers of the workload of a pod.
type recommendations struct {
	indexer cache.Indexer
	owners  *owners
}

// workload identifies a controller of pods, without the version of its API.
type workload struct {
	kind schema.GroupKind
	name string
}

// recommendation is the recommendation of a VerticalPodAutoscaler.
type recommendation struct {
	metav1.ObjectMeta

	target workload
	// amounts are by container.
	amounts map[string]amounts
}

// amounts are in the unit of usage.Answer. Users choose how many containers a recommendation has, and a map for each of them takes
// ten times as much memory.
type amounts struct{ cpu, memory int64 }

func autoscalers() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "autoscaling.k8s.io", Version: "v1", Resource: "verticalpodautoscalers"}
}

func newRecommendations(d admit.Deps) (*recommendations, error) {
	informer := d.OptionalInformers.ForResource(autoscalers()).Informer()
	if err := informer.SetTransform(read); err != nil {
		return nil, fmt.Errorf("watching VerticalPodAutoscalers: %w", err)
	}
	if err := informer.AddIndexers(cache.Indexers{byTarget: func(obj any) ([]string, error) {
		if r, ok := obj.(*recommendation); ok {
			return []string{r.target.in(r.Namespace)}, nil
		}
		return nil, nil
	}}); err != nil {
		return nil, fmt.Errorf("watching VerticalPodAutoscalers: %w", err)
	}
	return &recommendations{informer.GetIndexer(), newOwners(d)}, nil
}

// in returns the key of a workload in the index.
func (w workload) in(namespace string) string {
	return namespace + "/" + w.kind.String() + "/" + w.name
}

// read is the transformation of the informer. It treats a field whose type differs from the schema as unset.
func read(obj any) (any, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj, nil
	}
	text := func(content map[string]any, fields ...string) string {
		s, _, _ := unstructured.NestedString(content, fields...)
		return s
	}
	r := &recommendation{
		ObjectMeta: metav1.ObjectMeta{
			Name: u.GetName(), Namespace: u.GetNamespace(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(), CreationTimestamp: u.GetCreationTimestamp(),
		},
		target: workload{
			schema.FromAPIVersionAndKind(text(u.Object, "spec", "targetRef", "apiVersion"), text(u.Object, "spec", "targetRef", "kind")).GroupKind(),
			text(u.Object, "spec", "targetRef", "name"),
		},
		amounts: map[string]amounts{},
	}
	field, _, _ := unstructured.NestedFieldNoCopy(u.Object, "status", "recommendation", "containerRecommendations")
	containers, _ := field.([]any)
	for _, c := range containers {
		content, _ := c.(map[string]any)
		amount := func(name corev1.ResourceName) int64 {
			value := text(content, "target", string(name))
			// API servers do not parse the quantities of custom resources.
			if quantities.IsFar(value) {
				return 0
			}
			q, err := resource.ParseQuantity(value)
			if err != nil {
				return 0
			}
			return usage.Amount(name, q)
		}
		r.amounts[text(content, "containerName")] = amounts{amount(corev1.ResourceCPU), amount(corev1.ResourceMemory)}
	}
	return r, nil
}

// estimate implements estimator.
func (r *recommendations) estimate(ctx context.Context, namespace string, pod *corev1.Pod, wants []want) []int64 {
	out := make([]int64, len(wants))
	found := r.find(ctx, namespace, pod)
	if found == nil {
		return out
	}
	for i, w := range wants {
		a := found.amounts[w.Name]
		out[i] = a.memory
		if w.resource == corev1.ResourceCPU {
			out[i] = a.cpu
		}
	}
	return out
}

// find returns the recommendation for the controller of a pod, or for the controller of that controller.
func (r *recommendations) find(ctx context.Context, namespace string, pod *corev1.Pod) *recommendation {
	controller := metav1.GetControllerOf(pod)
	if controller == nil {
		return nil
	}
	if found := r.of(namespace, workloadOf(controller)); found != nil {
		return found
	}
	// Without a VerticalPodAutoscaler in the namespace there is no need to ask the API server.
	if here, err := r.indexer.IndexKeys(cache.NamespaceIndex, namespace); err != nil || len(here) == 0 {
		return nil
	}
	owner, err := r.owners.of(ctx, namespace, controller)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Could not look up the owner of a pod's controller", "controller", controller.Name, "err", err)
	}
	if owner == nil {
		return nil
	}
	return r.of(namespace, *owner)
}

// of returns the oldest recommendation for a workload, or nil.
func (r *recommendations) of(namespace string, w workload) *recommendation {
	items, err := r.indexer.ByIndex(byTarget, w.in(namespace))
	if err != nil {
		return nil
	}
	var all []*recommendation
	for _, item := range items {
		if r, ok := item.(*recommendation); ok {
			all = append(all, r)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return slices.MinFunc(all, func(a, b *recommendation) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
}

func workloadOf(o *metav1.OwnerReference) workload {
	return workload{schema.FromAPIVersionAndKind(o.APIVersion, o.Kind).GroupKind(), o.Name}
}
