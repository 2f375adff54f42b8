// Package nodedeclaredfeaturevalidator denies an update of a pod that needs a
// feature which its node does not declare. See README.md.
package nodedeclaredfeaturevalidator

import (
	"context"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/version"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-helpers/nodedeclaredfeatures"

	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/access"
)

const (
	nodeDeclaredFeatures        featuregate.Feature = "NodeDeclaredFeatures"
	draNodeAllocatableResources featuregate.Feature = "DRANodeAllocatableResources"
)

// Plugin is NodeDeclaredFeatureValidator.
//
// Upstream: plugin/pkg/admission/nodedeclaredfeatures.
var Plugin = &admit.Plugin{
	Name:  "NodeDeclaredFeatureValidator",
	Rules: []admit.Rule{admit.On("pods", admissionv1.Update).If(respecified()), admit.On("pods/resize", admissionv1.Update)},
	Features: map[featuregate.Feature]featuregate.FeatureSpec{
		// An API server of version 1.37 locks the gate on. Older versions can
		// disable it.
		nodeDeclaredFeatures:        {Default: true, PreRelease: featuregate.GA},
		draNodeAllocatableResources: {Default: false, PreRelease: featuregate.Alpha},
	},
	Access: access.Rules{access.Lookup("", "nodes")},
	New:    newHandler,
}

func newHandler(d admit.Deps, data []byte) (admit.Handler, error) {
	if !d.Features.Enabled(nodeDeclaredFeatures) {
		return admit.Handler{}, nil
	}
	informer := d.Informers.Core().V1().Nodes()
	informer.Informer()
	v := &validator{
		nodes: informer.Lister(), client: d.Client.CoreV1().Nodes(),
		features: nodedeclaredfeatures.DefaultFramework, version: version.MajorMinor(1, 37),
	}
	pods, slices := admit.Typed(v.pod), admit.Typed(v.slice)
	validate := func(ctx context.Context, r *admit.Request) error {
		if r.Resource.Resource == "pods" {
			return pods(ctx, r)
		}
		return slices(ctx, r)
	}
	h := admit.Handler{Validate: validate}
	if d.Features.Enabled(draNodeAllocatableResources) {
		h.Rules = []admit.Rule{sliceRule()}
	}
	return h, nil
}

// sliceRule covers subresources too, although ResourceSlices have none. Upstream
// checks the subresource for pods only.
func sliceRule() admit.Rule {
	return admit.On("resourceslices/*", admissionv1.Create, admissionv1.Update).Of(resourcev1.GroupName).
		If(admit.CELAny(admit.CELList("object.spec.devices"), "d", "has(d.nodeAllocatableResources)"))
}

// respecified is the CEL for an update that changes the spec of a pod on a node. The
// API server increments the generation with each change of the spec.
func respecified() string {
	return admit.CELValue("object.spec.nodeName", "''") + " != '' && " +
		admit.CELValue("object.metadata.generation", "0") + " != " + admit.CELValue("oldObject.metadata.generation", "0")
}

type validator struct {
	nodes    corev1listers.NodeLister
	client   corev1client.NodeInterface
	features *nodedeclaredfeatures.Framework
	// version is the version of the library. Nodes need not declare features that
	// every node of a cluster of this version has.
	version *version.Version
}

func (v *validator) pod(ctx context.Context, r *admit.Request, pod, old *corev1.Pod) error {
	if pod.Spec.NodeName == "" {
		return nil
	}
	if old == nil {
		return admit.Deny(apierrors.NewBadRequest(fmt.Sprintf("expected an old pod but got a %T", r.OldObject)))
	}
	if old.Generation == pod.Generation || !sameShape(&pod.Spec, &old.Spec) {
		return nil
	}
	needed, err := v.features.InferForPodUpdate(podInfo(old), podInfo(pod), v.version)
	if err != nil {
		return admit.Forbidden(r, fmt.Errorf("failed to infer pod capability requirements: %w", err))
	}
	if needed.IsEmpty() {
		return nil
	}
	node, err := v.node(ctx, pod.Spec.NodeName)
	if apierrors.IsNotFound(err) {
		return admit.Forbidden(r, fmt.Errorf("node %q not found", pod.Spec.NodeName))
	}
	if err != nil {
		return err
	}
	result, err := v.features.MatchNode(needed, node)
	if err != nil {
		return admit.Forbidden(r, fmt.Errorf("failed to match pod requirements against node %q: %w", node.Name, err))
	}
	if !result.IsMatch {
		return admit.Forbidden(r, fmt.Errorf("pod update requires features %s which are not available on node %q", strings.Join(result.UnsatisfiedRequirements, ", "), node.Name))
	}
	return nil
}

// sameShape reports whether the update adds and removes no init container and no
// volume, and keeps the type of each volume. The API server denies any other update,
// and the library relies on that.
func sameShape(pod, old *corev1.PodSpec) bool {
	if len(pod.InitContainers) != len(old.InitContainers) || len(pod.Volumes) != len(old.Volumes) {
		return false
	}
	for i := range pod.Volumes {
		if (pod.Volumes[i].EmptyDir == nil) != (old.Volumes[i].EmptyDir == nil) {
			return false
		}
	}
	return true
}

func podInfo(pod *corev1.Pod) *nodedeclaredfeatures.PodInfo {
	return &nodedeclaredfeatures.PodInfo{Spec: &pod.Spec, Status: &pod.Status}
}

// node returns a node. It returns a NotFound error unchanged.
func (v *validator) node(ctx context.Context, name string) (*corev1.Node, error) {
	return admit.Lookup(ctx, v.nodes, v.client, name)
}
