package twoservers

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/e2e"
)

// attempts is the number of namespaces that are applied together with a pod.
const attempts = 20

// TestNamespaceAndPodAreAppliedTogether tests plugins that read the namespace of a pod. The cache of such a plugin
// may not contain a new namespace yet.
func TestNamespaceAndPodAreAppliedTogether(t *testing.T) {
	t.Parallel()
	c := suite.Start(t, controlplane.Options{})
	g := startGate(t, c)
	p := c.StartPostern(t, e2e.Options{Plugins: []string{"PodNodeSelector"}, Kubeconfig: g.kubeconfig(t, c)})
	tries := 0
	e2e.Eventually(t, settleBound, "the API server calls Postern", func(ctx context.Context) error {
		tries++
		return applyBoth(ctx, c, fmt.Sprintf("called-%d", tries))
	})
	applyAll(t, c, "told")
	g.shut.Lock()
	applyAll(t, c, "untold")
	g.shut.Unlock()
	t.Logf("The cache lacked %d of %d namespaces", lookedUp(t, c, "told"), attempts)
	// The mutating or the validating webhook looks up each namespace at least once.
	if got := lookedUp(t, c, "untold"); got < attempts {
		t.Errorf("While the cache had no news, Postern looked %d namespaces up, want %d at least", got, attempts)
	}
	if failed := p.Metric(t, "postern_webhook_requests_total", `verdict="failed"`); failed > 0 {
		t.Errorf("%v calls failed", failed)
	}
}

// applyAll applies namespaces, each with a pod.
func applyAll(t *testing.T, c *e2e.Cluster, prefix string) {
	t.Helper()
	for i := range attempts {
		if err := applyBoth(t.Context(), c, fmt.Sprintf("%s-%d", prefix, i)); err != nil {
			t.Errorf("Attempt %d: %v", i+1, err)
		}
	}
}

// applyBoth applies a namespace and a pod in it. The pod must get the node selector of the namespace.
func applyBoth(ctx context.Context, c *e2e.Cluster, name string) error {
	options := metav1.ApplyOptions{FieldManager: "twoservers", Force: true}
	ns := corev1ac.Namespace(name).WithAnnotations(map[string]string{"scheduler.alpha.kubernetes.io/node-selector": "of=" + name})
	if _, err := c.Admin.CoreV1().Namespaces().Apply(ctx, ns, options); err != nil {
		return fmt.Errorf("applying namespace %s: %w", name, err)
	}
	pod := corev1ac.Pod("web", name).WithSpec(corev1ac.PodSpec().WithContainers(corev1ac.Container().WithName("app").WithImage("app")))
	got, err := c.Admin.CoreV1().Pods(name).Apply(ctx, pod, options)
	if err != nil {
		return fmt.Errorf("applying a pod in namespace %s: %w", name, err)
	}
	if got.Spec.NodeSelector["of"] != name {
		return fmt.Errorf("the pod in namespace %s has the node selector %v", name, got.Spec.NodeSelector)
	}
	return nil
}
