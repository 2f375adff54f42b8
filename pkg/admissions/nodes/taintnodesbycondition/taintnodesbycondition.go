// Package taintnodesbycondition taints new nodes as not ready, so that no pod runs on a node before the node
// reports that it is ready. See README.md.
package taintnodesbycondition

import (
	"context"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/postern-dev/postern/pkg/admit"
)

// Plugin is TaintNodesByCondition. It fails open: Postern itself may have no node to run on until nodes join.
//
// Upstream: plugin/pkg/admission/nodetaint.
var Plugin = &admit.Plugin{
	Name: "TaintNodesByCondition",
	// The rule has no condition: a webhook that is called later may replace the taints.
	Rules: []admit.Rule{admit.On("nodes", admissionv1.Create).OrIgnore()},
	New: func(admit.Deps, []byte) (admit.Handler, error) {
		return admit.Handler{Mutate: admit.Typed(mutate)}, nil
	},
}

// mutate adds the taint. The node controller would add it too, but only after pods could be scheduled. It removes the
// taint when the node is ready.
func mutate(_ context.Context, _ *admit.Request, node, _ *corev1.Node) error {
	taint := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	same := func(t corev1.Taint) bool { return t.MatchTaint(&taint) }
	if !slices.ContainsFunc(node.Spec.Taints, same) {
		node.Spec.Taints = append(node.Spec.Taints, taint)
	}
	return nil
}
