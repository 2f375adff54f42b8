// Package podtopologylabels copies the zone and region labels of a node to the pods
// that are bound to it, so that a pod can read its own topology. See README.md.
package podtopologylabels

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/component-base/featuregate"

	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/access"
)

const gate featuregate.Feature = "PodTopologyLabelsAdmission"

// Plugin is PodTopologyLabels.
//
// Upstream: plugin/pkg/admission/podtopologylabels.
var Plugin = &admit.Plugin{
	Name: "PodTopologyLabels",
	Rules: []admit.Rule{
		// No condition: a webhook that is called later may set the node.
		admit.On("pods", admissionv1.Create),
		admit.On("pods/binding", admissionv1.Create),
	},
	Features:     map[featuregate.Feature]featuregate.FeatureSpec{gate: {Default: true, PreRelease: featuregate.Beta}},
	Configurable: true,
	Access:       access.Rules{access.Watch("", "nodes")},
	New: func(d admit.Deps, data []byte) (admit.Handler, error) {
		keys, err := load(data)
		if err != nil || !d.Features.Enabled(gate) {
			return admit.Handler{}, err
		}
		p := &plugin{keys: keys, nodes: d.Informers.Core().V1().Nodes().Lister()}
		pod, binding := admit.Typed(p.pod), admit.Typed(p.binding)
		warnings := d.Redundant("PodTopologyLabels", len(keys) == len(inTreeLabels()))
		return admit.Handler{Warnings: warnings, Mutate: func(ctx context.Context, r *admit.Request) error {
			if r.SubResource == "binding" {
				return binding(ctx, r)
			}
			return pod(ctx, r)
		}}, nil
	},
}

type plugin struct {
	// keys are the keys of the labels to copy.
	keys  []string
	nodes corev1listers.NodeLister
}

// pod labels pods that are created with a node name, without a scheduler.
func (p *plugin) pod(_ context.Context, _ *admit.Request, pod, _ *corev1.Pod) error {
	if pod.Spec.NodeName == "" {
		return nil
	}
	return p.label(&pod.ObjectMeta, pod.Spec.NodeName)
}

// binding labels the binding that a scheduler creates. The API server copies the
// labels of the binding to the pod.
func (p *plugin) binding(_ context.Context, _ *admit.Request, binding, _ *corev1.Binding) error {
	if binding.Target.Kind != "Node" {
		return nil
	}
	return p.label(&binding.ObjectMeta, binding.Target.Name)
}

// label overwrites existing labels. It ignores an unknown node, because scheduling
// must not depend on this plugin.
func (p *plugin) label(object *metav1.ObjectMeta, nodeName string) error {
	node, err := p.nodes.Get(nodeName)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking up node %s: %w", nodeName, err)
	}
	for _, key := range p.keys {
		value, ok := node.Labels[key]
		if !ok {
			continue
		}
		if object.Labels == nil {
			object.Labels = map[string]string{}
		}
		object.Labels[key] = value
	}
	return nil
}
