// Package taintnodesbycondition has no pod run on a node before the node has said
// that it is ready. See README.md.
package taintnodesbycondition

import (
	"context"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/postern-dev/postern/pkg/admissions/admit"
)

// Plugin is TaintNodesByCondition. Nodes join while Postern is down: without them
// it may have nowhere to run.
//
// Upstream: plugin/pkg/admission/nodetaint.
var Plugin = &admit.Plugin{
	Name:  "TaintNodesByCondition",
	Rules: []admit.Rule{admit.On("nodes", admissionv1.Create).In(admit.Mutating).If(untainted()).OrIgnore()},
	New: func(_ admit.Deps, data []byte) (admit.Handler, error) {
		return admit.Handler{Mutate: admit.Typed(mutate)}, admit.NoConfig(data)
	},
}

// untainted is the CEL for a node without the taint.
func untainted() string {
	return fmt.Sprintf("!%s.exists(t, has(t.key) && t.key == '%s' && has(t.effect) && t.effect == '%s')",
		admit.CELList("object.spec.taints"), corev1.TaintNodeNotReady, corev1.TaintEffectNoSchedule)
}

// mutate adds the taint. The node controller would too, a moment later: pods could
// be scheduled in between. It takes the taint away once the node is ready.
func mutate(_ context.Context, _ *admit.Request, node, _ *corev1.Node) error {
	taint := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	same := func(t corev1.Taint) bool { return t.MatchTaint(&taint) }
	if !slices.ContainsFunc(node.Spec.Taints, same) {
		node.Spec.Taints = append(node.Spec.Taints, taint)
	}
	return nil
}
