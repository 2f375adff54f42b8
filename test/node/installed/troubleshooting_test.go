//go:build linux

package installed_test

import (
	"slices"
	"testing"

	"github.com/postern-dev/postern/test/controlplane/walkthrough"
	"github.com/postern-dev/postern/test/node"
)

// TestTroubleshooting executes docs/troubleshooting.md in the cluster that the page describes.
func TestTroubleshooting(t *testing.T) {
	const page = "docs/troubleshooting.md"
	c := startCluster(t)
	if err := c.Push(t.Context(), "test/web:1", node.File{Path: "/workload", From: c.Workload()}); err != nil {
		t.Fatal(err)
	}
	c.block(t, c.readme(t)[0])
	c.installed(t)
	c.sh(t, "helm upgrade postern installer/helm/postern --namespace %s --reuse-values --wait --set plugins='{AlwaysPullImages,PodNodeSelector,OwnerReferencesPermissionEnforcement}'", namespace)
	c.replaced(t)
	c.sh(t, "kubectl create namespace shop && kubectl annotate namespace shop scheduler.alpha.kubernetes.io/node-selector=team=shop")
	c.sh(t, "kubectl -n shop create deployment web --image=web:1 --replicas=0")
	c.sh(t, `kubectl -n shop patch deployment web -p '{"spec": {"replicas": 1, "template": {"spec": {"nodeSelector": {"team": "other"}}}}}'`)
	for _, section := range []string{
		"Why was a request denied?", "Why was a request not denied?", "Why is a webhook not registered?",
		// This stops Postern, and what it has logged goes with it.
		"What does the API server's log say?",
	} {
		t.Run(section, func(t *testing.T) {
			// A test of test/e2e compares the audit event.
			blocks := slices.DeleteFunc(c.blocks(t, page, section), func(b walkthrough.Block) bool { return b.Kind == "json" })
			if _, admitted := c.walk(t, blocks); admitted == 0 {
				t.Error("The section has no command that is admitted")
			}
		})
	}
}
