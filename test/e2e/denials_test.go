package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/postern-dev/postern/test/controlplane/walkthrough"
	"github.com/postern-dev/postern/test/e2e"
)

// documentedDenial returns the audit event in docs/troubleshooting.md.
func documentedDenial(t *testing.T, c *e2e.Cluster) e2e.AuditEvent {
	t.Helper()
	for _, b := range walkthrough.Blocks(page(t, c, "troubleshooting.md")) {
		if b.Kind != "json" {
			continue
		}
		var e e2e.AuditEvent
		if err := json.Unmarshal([]byte(b.Text), &e); err != nil {
			t.Fatal(err)
		}
		return e
	}
	t.Fatal("The document has no audit event")
	return e2e.AuditEvent{}
}

// TestDenialNamesThePlugin has two plugins of one family, so that the name of the webhook does not tell which one denied a pod. The
// audit log, Postern's log at its default verbosity and a metric do.
func TestDenialNamesThePlugin(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	ns := c.Namespace(t)
	p := c.StartPostern(t, e2e.Options{Plugins: []string{"SecurityContextDeny", "PodNodeSelector"}, Flags: []string{"--v=0"}})
	pods := c.Admin.CoreV1().Pods(ns)
	selector := []byte(`{"metadata": {"annotations": {"scheduler.alpha.kubernetes.io/node-selector": "team=shop"}}}`)
	if _, err := c.Admin.CoreV1().Namespaces().Patch(t.Context(), ns, types.MergePatchType, selector, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	denied := []struct {
		plugin, pod string
		change      func(*corev1.PodSpec)
	}{
		{"SecurityContextDeny", "root", func(s *corev1.PodSpec) { s.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(0))} }},
		{"PodNodeSelector", "web", func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"team": "other"} }},
	}
	for _, d := range denied {
		e2e.Eventually(t, settleBound, "the API server calls Postern", func(ctx context.Context) error {
			if _, err := pods.Create(ctx, podWith("called", d.change), dryRun()); !apierrors.IsForbidden(err) {
				return fmt.Errorf("got %w", err)
			}
			return nil
		})
	}
	want := map[string]string{"admitted": ""}
	for _, d := range denied {
		want[d.pod] = d.plugin
		label := fmt.Sprintf("plugin=%q", d.plugin)
		before := p.Metric(t, "postern_denials_total", label)
		_, err := pods.Create(t.Context(), podWith(d.pod, d.change), metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) || strings.Contains(err.Error(), d.plugin) {
			t.Errorf("Got %v, want a denial with the words of kube-apiserver", err)
		}
		if after := p.Metric(t, "postern_denials_total", label); after != before+1 {
			t.Errorf("%s denied %v requests and then %v, want one more", d.plugin, before, after)
		}
		e2e.Eventually(t, settleBound, "the denial is in the log", func(context.Context) error {
			logged := 0
			for line := range strings.Lines(p.Log()) {
				if strings.Contains(line, `] "Denied" `) && strings.Contains(line, fmt.Sprintf(` object=%q plugin=%q user="`, ns+"/"+d.pod, d.plugin)) {
					logged++
				}
			}
			if logged != 1 {
				return fmt.Errorf("the denial of %s is in %d lines of the log, want 1", d.plugin, logged)
			}
			return nil
		})
	}
	if _, err := pods.Create(t.Context(), pod("admitted"), metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	documented := documentedDenial(t, c)
	documented.ObjectRef.Namespace = ns
	e2e.Eventually(t, settleBound, "the audit log has the events", func(context.Context) error {
		got, found := map[string]string{}, false
		for _, e := range c.Audit(t, func(e e2e.AuditEvent) bool {
			return e.ObjectRef.Namespace == ns && e.ObjectRef.Resource == "pods" && e.ObjectRef.Name != "called"
		}) {
			got[e.ObjectRef.Name] = e.Annotations["pods.postern.dev/plugin"]
			maps.DeleteFunc(e.Annotations, func(key, _ string) bool { return documented.Annotations[key] == "" })
			found = found || e.Verb == documented.Verb && e.ObjectRef == documented.ObjectRef && maps.Equal(e.Annotations, documented.Annotations)
		}
		if !maps.Equal(got, want) {
			return fmt.Errorf("got the audit annotations %v, want %v", got, want)
		}
		if !found {
			return fmt.Errorf("no audit event is as the document says, %+v", documented)
		}
		return nil
	})
}
