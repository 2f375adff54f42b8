//go:build linux

package installed_test

import (
	"slices"
	"testing"

	"github.com/postern-dev/postern/test/node"
	"github.com/postern-dev/postern/test/node/installed"
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
	c.sh(t, "kubectl create namespace shop && kubectl annotate namespace shop scheduler.alpha.kubernetes.io/node-selector=team=shop")
	c.sh(t, "kubectl -n shop create deployment web --image=web:1 --replicas=0")
	c.sh(t, `kubectl -n shop patch deployment web -p '{"spec": {"replicas": 1, "template": {"spec": {"nodeSelector": {"team": "other"}}}}}'`)
	c.replaced(t)
	for _, want := range []struct {
		section           string
		refused, admitted int
	}{
		{"Why was a request denied?", 1, 2},
		{"Why was a request not denied?", 1, 5},
		{"Why is a webhook not registered?", 0, 1},
		// This stops Postern, and what it has logged goes with it.
		{"What does the API server's log say?", 1, 4},
	} {
		t.Run(want.section, func(t *testing.T) {
			blocks := slices.DeleteFunc(c.blocks(t, page, want.section), func(b installed.Block) bool { return b.Kind == "json" })
			if refused, admitted := c.walk(t, blocks); refused != want.refused || admitted != want.admitted {
				t.Errorf("The section has %d commands that are refused and %d that are not, want %d and %d", refused, admitted, want.refused, want.admitted)
			}
		})
	}
}
