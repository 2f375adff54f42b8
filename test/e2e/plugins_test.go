package e2e_test

import (
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/test/controlplane"
)

// TestPluginsOfTheAPIServer checks that the plugins command recognizes the plugins of a real kube-apiserver in its
// metrics. The API server runs the plugins that are on by default.
func TestPluginsOfTheAPIServer(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	// A plugin is in the metrics after its first request.
	if _, err := c.Admin.CoreV1().Pods(c.Namespace(t)).Create(t.Context(), pod("web"), metav1.CreateOptions{}); err != nil {
		t.Fatalf("Creating a pod: %v", err)
	}
	out := suite.Output(t, "plugins", "-o", "json", "--kubeconfig="+c.Kubeconfig(controlplane.Admin))
	var rows []struct {
		Name        string
		OnByDefault bool
		InAPIServer *bool
	}
	if err := json.Unmarshal([]byte(out), &rows); err != nil {
		t.Fatalf("Got %v in %s", err, out)
	}
	got := map[string]bool{}
	for _, r := range rows {
		if r.InAPIServer == nil {
			t.Fatalf("Got nothing about %s in %s", r.Name, out)
		}
		got[r.Name] = *r.InAPIServer
	}
	for _, name := range []string{"LimitRanger", "ServiceAccount", "NamespaceLifecycle", "Priority", "PodSecurity", "RuntimeClass"} {
		if !got[name] {
			t.Errorf("Got no for %s, which the API server runs", name)
		}
	}
	for _, name := range []string{"AlwaysPullImages", "AlwaysDeny", "NamespaceAutoProvision", "SecurityContextDeny", "PodSecurityPolicy"} {
		if got[name] {
			t.Errorf("Got yes for %s, which the API server does not run", name)
		}
	}
	// A user who may not read the metrics still gets the table.
	code, said := c.RunPostern(t, "plugins", "--kubeconfig="+c.Kubeconfig(controlplane.Alice))
	if code != 0 || !strings.Contains(said, "it is not known which plugins the API server runs: ") || !strings.Contains(said, "\nAlwaysPullImages ") {
		t.Errorf("Got exit code %d: %s", code, said)
	}
}
