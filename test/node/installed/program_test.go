//go:build linux

package installed_test

import (
	"runtime"
	"slices"
	"strings"
	"testing"
)

// TestProgram installs examples/custom, a program with a plugin and a service of its own, as docs/extending.md says: with the
// roles of the chart, and with those that the program prints.
func TestProgram(t *testing.T) {
	c := startCluster(t)
	blocks := c.commands(t, "docs/extending.md", "Install it", 2)
	for i, line := range blocks[0] {
		blocks[0][i] = strings.ReplaceAll(line, "GOARCH=amd64", "GOARCH="+runtime.GOARCH)
	}
	c.sh(t, "kubectl create namespace blue && kubectl label namespace blue team=blue && kubectl create namespace teamless")
	before, err := c.objects(t)
	if err != nil {
		t.Fatal(err)
	}
	install := blocks[0][len(blocks[0])-1]
	for _, step := range []struct {
		name     string
		commands []string
		after    string
	}{
		{"with the chart's roles", blocks[0], "true"},
		{"with printed roles", append(slices.Clone(blocks[1]), install+" --set rbac.create=false"), strings.ReplaceAll(blocks[1][0], "kubectl apply", "kubectl delete")},
	} {
		if !t.Run(step.name, func(t *testing.T) {
			c.block(t, step.commands)
			c.installed(t)
			c.custom(t)
			c.replicas(t)
			c.sh(t, "helm uninstall postern --namespace %s --wait --timeout 120s", namespace)
			if configurations := c.configurations(t); len(configurations) > 0 {
				t.Errorf("helm uninstall leaves %q", configurations)
			}
			c.sh(t, "%s", step.after)
			c.endReplicas(t)
			c.leaves(t, before, kept()...)
		}) {
			t.Fatalf("The steps after %q need it.", step.name)
		}
	}
}

// custom checks that the plugin and the service of the program decide.
func (c *cluster) custom(t *testing.T) {
	t.Helper()
	const kind = "webhookconfiguration.admissionregistration.k8s.io/"
	want := []string{"mutating" + kind + "postern-acme", "mutating" + kind + "postern-pods", "validating" + kind + "cost-center", "validating" + kind + "postern-acme", "validating" + kind + "postern-pods"}
	c.eventually(t, "the webhooks of the program", func() string {
		if got := c.configurations(t); !slices.Equal(got, want) {
			return "got " + strings.Join(got, " ")
		}
		return ""
	})
	// The API server calls a webhook a moment after it is registered.
	const web, balancer = "create service clusterip web --tcp=80", "create service loadbalancer balancer --tcp=80"
	for line, want := range map[string]string{
		"kubectl -n blue " + web + " -o yaml": "team: blue", "kubectl -n teamless " + web: "the label team is missing", "kubectl -n blue " + balancer: "needs the label cost-center",
	} {
		c.eventually(t, want, func() string {
			if out, _ := c.shell.Run(t.Context(), line+" --dry-run=server"); !strings.Contains(out, want) {
				return "got " + out
			}
			return ""
		})
	}
	c.sh(t, "kubectl -n blue "+web)
	if got := c.sh(t, "kubectl -n blue get service web -o jsonpath='{.metadata.labels.team}'"); got != "blue" {
		t.Errorf("The Service has the label team=%s, want that of its namespace, blue", got)
	}
	c.refused(t, "kubectl -n teamless "+web, "the label team is missing")
	c.refused(t, "kubectl -n blue "+balancer, "a load balancer needs the label cost-center")
	c.sh(t, "kubectl -n blue "+balancer+" --dry-run=client -o yaml | kubectl label --local -f - cost-center=42 -o yaml | kubectl create -f -")
	c.sh(t, "kubectl -n blue delete service web balancer")
}
