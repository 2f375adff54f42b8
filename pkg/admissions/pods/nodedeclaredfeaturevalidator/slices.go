package nodedeclaredfeaturevalidator

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/nodedeclaredfeatures/features/dranodeallocatableresources"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/utils/ptr"

	"github.com/postern-dev/postern/pkg/admit"
)

// maxRequirements bounds the requirements and values of all node selectors of a slice. They may have to be compared with all
// nodes, and making a selector takes quadratic time. A slice has at most 128 devices, and drivers write one or two
// requirements for each.
const maxRequirements = 1000

// slice denies devices that represent resources of a node (CPU or memory), unless
// the node declares support for such devices.
func (v *validator) slice(ctx context.Context, r *admit.Request, slice, _ *resourcev1.ResourceSlice) error {
	requirements := requirementsOf(slice.Spec.NodeSelector)
	for i := range slice.Spec.Devices {
		requirements += requirementsOf(slice.Spec.Devices[i].NodeSelector)
	}
	if requirements > maxRequirements {
		return admit.Forbidden(r, fmt.Errorf("the node selectors of the ResourceSlice have %d requirements and values, at most %d are supported", requirements, maxRequirements))
	}
	for i := range slice.Spec.Devices {
		device := &slice.Spec.Devices[i]
		if len(device.NodeAllocatableResources) == 0 {
			continue
		}
		nodes, err := v.nodesOf(ctx, r, device.Name, placeOf(&slice.Spec, device))
		if err != nil {
			return err
		}
		for _, node := range nodes {
			if !slices.Contains(node.Status.DeclaredFeatures, dranodeallocatableresources.DRANodeAllocatableResourcesFeature) {
				return admit.Forbidden(r, fmt.Errorf("node %q does not support %s feature", node.Name, dranodeallocatableresources.DRANodeAllocatableResourcesFeature))
			}
		}
		if !ptr.Deref(slice.Spec.PerDeviceNodeSelection, false) {
			// All devices of the slice are on the same nodes.
			return nil
		}
	}
	return nil
}

// requirementsOf returns the number of requirements and values of a selector.
func requirementsOf(selector *corev1.NodeSelector) (n int) {
	if selector == nil {
		return 0
	}
	for _, term := range selector.NodeSelectorTerms {
		for _, r := range slices.Concat(term.MatchExpressions, term.MatchFields) {
			n += 1 + len(r.Values)
		}
	}
	return n
}

// place is where a device is: on the named node, on the nodes of the selector, on
// all nodes or on none, in this order of precedence.
type place struct {
	node     string
	selector *corev1.NodeSelector
	all      bool
}

func placeOf(slice *resourcev1.ResourceSliceSpec, device *resourcev1.Device) place {
	if ptr.Deref(slice.PerDeviceNodeSelection, false) {
		return place{ptr.Deref(device.NodeName, ""), device.NodeSelector, ptr.Deref(device.AllNodes, false)}
	}
	return place{ptr.Deref(slice.NodeName, ""), slice.NodeSelector, ptr.Deref(slice.AllNodes, false)}
}

// nodesOf returns the nodes of a device, sorted by name.
func (v *validator) nodesOf(ctx context.Context, r *admit.Request, device string, p place) ([]*corev1.Node, error) {
	if p.node != "" {
		node, err := v.node(ctx, p.node)
		if apierrors.IsNotFound(err) {
			return nil, admit.Forbidden(r, fmt.Errorf("node %q not found for device %q", p.node, device))
		}
		return []*corev1.Node{node}, err
	}
	if p.selector == nil && !p.all {
		return nil, admit.Forbidden(r, fmt.Errorf("device %q in ResourceSlice has NodeAllocatableResources but does not map to any nodes", device))
	}
	nodes, err := v.nodes.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing nodes for device %s: %w", device, err)
	}
	if p.selector != nil {
		selector, err := nodeaffinity.NewNodeSelector(p.selector)
		if err != nil {
			return nil, admit.Deny(apierrors.NewBadRequest(fmt.Sprintf("failed to create node selector: %v", err)))
		}
		nodes = slices.DeleteFunc(nodes, func(n *corev1.Node) bool { return !selector.Match(n) })
	}
	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	return nodes, nil
}
