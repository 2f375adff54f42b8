package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/ring"
	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/controlplane/walkthrough"
	"github.com/postern-dev/postern/test/e2e"
)

// TestFleetQuotaWalkThrough executes docs/fleet-quota.md: it writes the files in the document, runs each command, and
// compares what the command prints.
func TestFleetQuotaWalkThrough(t *testing.T) {
	ring.Second(t, "the times in the document add up to half a minute")
	t.Parallel()
	hub, east := suite.Start(t, controlplane.Options{}), suite.Start(t, controlplane.Options{})
	dir := t.TempDir()
	for name, c := range map[string]*e2e.Cluster{"hub": hub, "east": east} {
		definitions := []string{"fleetquotas.quota.postern.dev", "fleetallowances.quota.postern.dev"}
		if out, err := c.Kubectl(t.Context(), controlplane.Admin, append([]string{"delete", "crd"}, definitions...)...).CombinedOutput(); err != nil {
			t.Fatalf("Removing the definitions: %v: %s", err, out)
		}
		kubeconfig, err := os.ReadFile(c.Kubeconfig(controlplane.Admin))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name+".kubeconfig"), kubeconfig, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(filepath.Join(dir, "installer"), os.DirFS(filepath.Join(hub.Module(), "installer"))); err != nil {
		t.Fatal(err)
	}
	commands := 0
	for _, b := range walkthrough.Blocks(page(t, hub, "fleet-quota.md")) {
		if b.File != "" {
			text := strings.ReplaceAll(b.Text, "/etc/postern/hub.kubeconfig", hub.PosternKubeconfig(t, hub.URL()))
			if err := os.WriteFile(filepath.Join(dir, b.File), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if b.Kind != "console" {
			continue
		}
		for _, step := range b.Steps() {
			commands++
			walk(t, east, dir, step.Command, words(step.Prints))
			if strings.HasSuffix(step.Command, "fleetallowances.yaml") {
				east.StartPostern(t, e2e.Options{Plugins: []string{"FleetQuota"}, Flags: []string{"--admission-control-config-file=" + filepath.Join(dir, "admission.yaml")}})
			}
		}
	}
	if commands < 12 {
		t.Errorf("The document has %d commands", commands)
	}
}
