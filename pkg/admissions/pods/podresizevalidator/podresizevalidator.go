// Package podresizevalidator denies resizing a pod beyond the resources of its node.
// See README.md.
package podresizevalidator

import (
	"context"
	"errors"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/component-base/featuregate"

	"github.com/postern-dev/postern/internal/kinds/podresources"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/access"
)

// The types of the causes in a denial.
const (
	unsupportedPlatform metav1.CauseType = "UnsupportedPlatform"
	nodeCapacity        metav1.CauseType = "NodeCapacity"
)

const inPlacePodVerticalScaling featuregate.Feature = "InPlacePodVerticalScaling"

// Plugin is PodResizeValidator.
//
// Upstream: plugin/pkg/admission/podresize.
var Plugin = &admit.Plugin{
	Name:  "PodResizeValidator",
	Rules: []admit.Rule{admit.On("pods/resize", admissionv1.Update)},
	Features: map[featuregate.Feature]featuregate.FeatureSpec{
		// An API server of version 1.35 locks the gate on. Older versions can
		// disable it.
		inPlacePodVerticalScaling: {Default: true, PreRelease: featuregate.GA},
	},
	Access: access.Rules{access.Lookup("", "nodes")},
	New: func(d admit.Deps, _ []byte) (admit.Handler, error) {
		if !d.Features.Enabled(inPlacePodVerticalScaling) {
			return admit.Handler{}, nil
		}
		informer := d.Informers.Core().V1().Nodes()
		informer.Informer()
		n := &nodes{lister: informer.Lister(), client: d.Client.CoreV1().Nodes()}
		return admit.Handler{Validate: admit.Typed(n.validate)}, nil
	},
}

type nodes struct {
	lister corev1listers.NodeLister
	client corev1client.NodeInterface
}

func (n *nodes) validate(ctx context.Context, r *admit.Request, pod, old *corev1.Pod) error {
	if pod.Spec.NodeName == "" {
		return nil
	}
	if old == nil {
		return admit.Deny(apierrors.NewBadRequest(fmt.Sprintf("expected an old pod but got a %T", r.OldObject)))
	}
	// The API server increments the generation with each change of the spec.
	if old.Generation == pod.Generation {
		return nil
	}
	node, err := admit.Lookup(ctx, n.lister, n.client, pod.Spec.NodeName)
	if apierrors.IsNotFound(err) {
		return admit.Forbidden(r, fmt.Errorf("node %q not found", pod.Spec.NodeName))
	}
	if err != nil {
		return err
	}
	// Upstream: a node without the label counts as a Linux node.
	if os, ok := node.Labels[corev1.LabelOSStable]; ok && os != "linux" {
		return refused(r, unsupportedPlatform, fmt.Errorf("pod resize is only supported on linux nodes, node %q is %q", node.Name, os))
	}
	if err := exceeds(pod, node.Status.Allocatable); err != nil {
		return refused(r, nodeCapacity, err)
	}
	return nil
}

// exceeds returns the requests of the pod that exceed the node's allocatable
// resources. It ignores the other pods on the node, which the kubelet accounts for.
func exceeds(pod *corev1.Pod, allocatable corev1.ResourceList) error {
	requests := podresources.Requests(pod, podresources.Options{PodLevel: true})
	var over []string
	if got, most := requests.Cpu(), allocatable.Cpu(); got.Cmp(*most) > 0 {
		over = append(over, fmt.Sprintf("cpu, requested: %d, allocatable: %d", got.MilliValue(), most.MilliValue()))
	}
	if got, most := requests.Memory(), allocatable.Memory(); got.Cmp(*most) > 0 {
		over = append(over, fmt.Sprintf("memory, requested: %d, allocatable: %d", got.Value(), most.Value()))
	}
	if len(over) == 0 {
		return nil
	}
	return fmt.Errorf("node didn't have enough allocatable resources: %s", strings.Join(over, "; "))
}

// refused denies the request with a cause that clients can match.
func refused(r *admit.Request, cause metav1.CauseType, err error) error {
	denial, ok := errors.AsType[*admit.Denial](admit.Forbidden(r, err))
	if !ok {
		return err
	}
	status := denial.Status()
	status.Details.Causes = append(status.Details.Causes, metav1.StatusCause{Type: cause})
	return admit.Deny(&apierrors.StatusError{ErrStatus: status})
}
