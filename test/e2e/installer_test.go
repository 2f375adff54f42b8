package e2e_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/e2e"
)

// TestManifests applies the manifests of the installer. The cluster has no nodes for the pods of the Deployment, so the
// test starts a Postern process with the arguments of these pods.
func TestManifests(t *testing.T) {
	t.Parallel()
	c := suite.Start(t, controlplane.Options{ControllerManager: true})
	for _, name := range []string{"postern.yaml", "rbac.yaml", "flowcontrol.yaml"} {
		path := filepath.Join("..", "..", "installer", name)
		if out, err := c.Kubectl(t.Context(), controlplane.Admin, "apply", "--validate=strict", "-f", path).CombinedOutput(); err != nil {
			t.Fatalf("Applying %s: %v: %s", name, err, out)
		}
	}
	// The namespace enforces the restricted Pod Security Standard, so the pods must comply with it.
	e2e.Eventually(t, settleBound, "the Deployment has its pods", func(ctx context.Context) error {
		pods, err := c.Admin.CoreV1().Pods(e2e.PosternNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=postern"})
		if err == nil && len(pods.Items) != 2 {
			err = fmt.Errorf("there are %d", len(pods.Items))
		}
		return err
	})
	d, err := c.Admin.AppsV1().Deployments(e2e.PosternNamespace).Get(t.Context(), "postern", metav1.GetOptions{})
	if err != nil {
		t.Fatalf("Reading the Deployment: %v", err)
	}
	args := d.Spec.Template.Spec.Containers[0].Args
	// StartPostern passes the plugins with another flag, which cannot be combined with this flag.
	named := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--enable-admission-plugins=") })
	if named < 0 {
		t.Fatalf("The arguments %q name no plugins", args)
	}
	_, plugins, _ := strings.Cut(args[named], "=")
	p := c.StartPostern(t, e2e.Options{Plugins: strings.Split(plugins, ","), Flags: slices.Delete(slices.Clone(args), named, named+1)})
	awaitCalled(t, c)
	served := c.Metrics(t)
	for _, schema := range []string{"postern-reads", "postern-writes"} {
		if n := served.Sum(t, "apiserver_flowcontrol_dispatched_requests_total", `flow_schema="`+schema+`"`, `priority_level="`+schema+`"`); n == 0 {
			t.Errorf("The API server has served no request of Postern by the FlowSchema %s", schema)
		}
	}
	p.Stop(t)
}
