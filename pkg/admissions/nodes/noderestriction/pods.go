package noderestriction

import (
	"context"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/postern-dev/postern/pkg/admit"
)

// pods allows a node to create only mirror pods, and to change, evict and delete only pods that are bound to
// it.
func (n *nodeRestriction) pods(ctx context.Context, r *admit.Request, node string) error {
	switch r.SubResource {
	case "":
		return n.pod(ctx, r, node)
	case "status":
		return checkPodStatus(r, node)
	case "eviction":
		return n.eviction(ctx, r, node)
	}
	return deny(r, "unexpected pod subresource %q, only 'status' and 'eviction' are allowed", r.SubResource)
}

func (n *nodeRestriction) pod(ctx context.Context, r *admit.Request, node string) error {
	switch r.Operation {
	case admissionv1.Create:
		if r.Namespace == n.own {
			// Also a mirror pod has labels, by which it would become an endpoint of Postern's Service and count for
			// its disruption budget and its quota.
			return deny(r, "node %q cannot create pods in the namespace of Postern", node)
		}
		return n.mirrorPod(ctx, r, node)
	case admissionv1.Delete:
		pod, err := n.deletedPod(ctx, r)
		if err != nil {
			return err
		}
		if pod.Spec.NodeName != node {
			return deny(r, "node %q can only delete pods with spec.nodeName set to itself", node)
		}
		return nil
	default:
		return deny(r, "unexpected operation %q, node %q can only create and delete mirror pods", r.Operation, node)
	}
}

// deletedPod returns the deleted pod. Upstream: the pod is looked up by the name of the request, so a node
// cannot delete a collection.
func (n *nodeRestriction) deletedPod(ctx context.Context, r *admit.Request) (*corev1.Pod, error) {
	if old, ok := r.OldObject.(*corev1.Pod); ok && r.Name != "" {
		return old, nil
	}
	return n.findPod(ctx, r.Namespace, r.Name)
}

func (n *nodeRestriction) findPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return find(ctx, n.client.CoreV1().Pods(namespace), corev1.Resource("pod"), name)
}

// checkPodStatus allows a node to update the status only of a pod that is bound to it, and denies a change of
// the labels or of the resource claims. Labels are used by selectors, and authorizers rely on the claims.
func checkPodStatus(r *admit.Request, node string) error {
	if r.Operation != admissionv1.Update {
		return deny(r, "unexpected operation %q", r.Operation)
	}
	old, ok := r.OldObject.(*corev1.Pod)
	switch {
	case !ok:
		return unexpected(r, r.OldObject)
	case old.Spec.NodeName != node:
		return deny(r, "node %q can only update pod status for pods with spec.nodeName set to itself", node)
	}
	pod, ok := r.Object.(*corev1.Pod)
	switch {
	case !ok:
		return unexpected(r, r.Object)
	case !labels.Equals(old.Labels, pod.Labels):
		return deny(r, "node %q cannot update labels through pod status", node)
	case !slices.EqualFunc(old.Status.ResourceClaimStatuses, pod.Status.ResourceClaimStatuses, sameClaim):
		return deny(r, "node %q cannot update resource claim statues", node)
	case !sameExtendedClaim(old.Status.ExtendedResourceClaimStatus, pod.Status.ExtendedResourceClaimStatus):
		return deny(r, "node %q cannot update extended resource claim status", node)
	case !slices.EqualFunc(old.Status.NodeAllocatableResourceClaimStatuses, pod.Status.NodeAllocatableResourceClaimStatuses, sameAllocatableClaim):
		return deny(r, "node %q cannot update node allocatable resource claim statuses", node)
	}
	return nil
}

func sameClaim(a, b corev1.PodResourceClaimStatus) bool {
	return a.Name == b.Name && ptr.Equal(a.ResourceClaimName, b.ResourceClaimName)
}

func sameExtendedClaim(a, b *corev1.PodExtendedResourceClaimStatus) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.ResourceClaimName == b.ResourceClaimName && slices.Equal(a.RequestMappings, b.RequestMappings)
}

func sameAllocatableClaim(a, b corev1.NodeAllocatableResourceClaimStatus) bool {
	sameMapping := func(a, b corev1.NodeAllocatableMappedResources) bool {
		return a.Name == b.Name && resource.QuantityPtrEqual(a.Quantity, b.Quantity)
	}
	sameOverhead := func(a, b corev1.NodeAllocatableOverheadResources) bool {
		return a.Name == b.Name && resource.QuantityPtrEqual(a.PerPod, b.PerPod) && resource.QuantityPtrEqual(a.PerContainer, b.PerContainer)
	}
	return a.ResourceClaimName == b.ResourceClaimName && slices.Equal(a.Containers, b.Containers) &&
		slices.EqualFunc(a.Mapping, b.Mapping, sameMapping) && slices.EqualFunc(a.Overhead, b.Overhead, sameOverhead)
}

// eviction allows a node to evict only pods that are bound to it. The request names the pod; the name in the
// Eviction matters only if the request has no name.
func (n *nodeRestriction) eviction(ctx context.Context, r *admit.Request, node string) error {
	if r.Operation != admissionv1.Create {
		return deny(r, "unexpected operation %s", r.Operation)
	}
	if r.Object == nil || r.Kind.Kind != "Eviction" {
		return unexpected(r, r.Object)
	}
	name := r.Name
	if name == "" {
		if m, err := meta.Accessor(r.Object); err == nil {
			name = m.GetName()
		}
	}
	if name == "" {
		return deny(r, "could not determine pod from request data")
	}
	pod, err := n.findPod(ctx, r.Namespace, name)
	if err != nil {
		return err
	}
	if pod.Spec.NodeName != node {
		return deny(r, "node %s can only evict pods with spec.nodeName set to itself", node)
	}
	return nil
}
