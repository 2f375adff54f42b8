package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/test/e2e"
)

// TestDenialNamesThePlugin has two plugins of one family, so that the name of the webhook does not tell which one denied a pod. The
// audit log, Postern's log at its default verbosity and a metric do.
func TestDenialNamesThePlugin(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	ns := c.Namespace(t)
	p := c.StartPostern(t, e2e.Options{Plugins: []string{"SecurityContextDeny", "LimitPodHardAntiAffinityTopology"}, Flags: []string{"--v=0"}})
	pods := c.Admin.CoreV1().Pods(ns)
	denied := map[string]func(*corev1.PodSpec){
		"SecurityContextDeny": func(s *corev1.PodSpec) { s.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(0))} },
		"LimitPodHardAntiAffinityTopology": func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
				{TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{}},
			}}}
		},
	}
	for _, change := range denied {
		e2e.Eventually(t, settleBound, "the API server calls Postern", func(ctx context.Context) error {
			if _, err := pods.Create(ctx, podWith("called", change), dryRun()); !apierrors.IsForbidden(err) {
				return fmt.Errorf("got %w", err)
			}
			return nil
		})
	}
	for _, plugin := range slices.Sorted(maps.Keys(denied)) {
		before := p.Metric(t, "postern_denials_total", `plugin="`+plugin+`"`)
		_, err := pods.Create(t.Context(), podWith("of-"+strings.ToLower(plugin), denied[plugin]), metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) || strings.Contains(err.Error(), plugin) {
			t.Errorf("Got %v, want a denial with the words of kube-apiserver", err)
		}
		if after := p.Metric(t, "postern_denials_total", `plugin="`+plugin+`"`); after != before+1 {
			t.Errorf("%s denied %v requests and then %v, want one more", plugin, before, after)
		}
		logged := 0
		for line := range strings.Lines(p.Log()) {
			if strings.Contains(line, `] "Denied" `) && strings.Contains(line, ` object="`+ns+`/of-`+strings.ToLower(plugin)+`" plugin="`+plugin+`" user="`) {
				logged++
			}
		}
		if logged != 1 {
			t.Errorf("The denial of %s is in %d lines of the log, want 1", plugin, logged)
		}
	}
	if _, err := pods.Create(t.Context(), pod("admitted"), metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	got := map[string]string{}
	for _, e := range c.Audit(t, func(e e2e.AuditEvent) bool { return e.ObjectRef.Namespace == ns && e.ObjectRef.Resource == "pods" && e.ObjectRef.Name != "called" }) {
		got[e.ObjectRef.Name] = e.Annotations["pods.postern.dev/plugin"]
	}
	want := map[string]string{"admitted": ""}
	for plugin := range denied {
		want["of-"+strings.ToLower(plugin)] = plugin
	}
	if !maps.Equal(got, want) {
		t.Errorf("Got the audit annotations %v, want %v", got, want)
	}
}
