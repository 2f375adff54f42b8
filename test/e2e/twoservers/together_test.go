package twoservers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/postern-dev/postern/internal/ring"
	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/e2e"
)

const (
	podsToCreate = 2000
	workers      = 16
	// patience ends a test that would never end.
	patience = 5 * time.Minute
)

// TestAllPluginsTogether runs every plugin except AlwaysDeny on an API server with default flags, and creates many pods.
func TestAllPluginsTogether(t *testing.T) {
	ring.Second(t, "2,000 pods")
	t.Parallel()
	o := suite.AllPlugins(t)
	o.Plugins = slices.DeleteFunc(o.Plugins, func(name string) bool { return name == "AlwaysDeny" })
	c := suite.Start(t, controlplane.Options{ControllerManager: true})
	c.AllowPods(t)
	p := c.StartPostern(t, o)
	ns := setUpTogether(t, c)
	api := c.Client(t, controlplane.Admin)
	e2e.Eventually(t, settleBound, "the API server calls Postern", func(ctx context.Context) error {
		_, err := api.CoreV1().Pods(ns).Create(ctx, together("called", 0), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		for _, phase := range halves {
			if err == nil && calls(t, p, phase) == 0 {
				err = fmt.Errorf("it was not called to %s", phase)
			}
		}
		return err
	})
	checkConfigurations(t, api)

	before := map[string]float64{}
	for _, phase := range halves {
		before[phase] = calls(t, p, phase)
	}
	start := time.Now()
	createAll(t, api, ns)
	took := time.Since(start)
	for _, phase := range halves {
		if got := calls(t, p, phase) - before[phase]; got > podsToCreate {
			t.Errorf("For %d pods the API server called Postern %v times to %s, want at most once each", podsToCreate, got, phase)
		} else {
			t.Logf("Calls to %s: %v", phase, got)
		}
	}
	if failed := p.Metric(t, "postern_webhook_requests_total", `verdict="failed"`); failed > 0 {
		t.Errorf("%v calls failed", failed)
	}
	checkPod(t, api, ns)
	// The metric is the value VmRSS of the kernel.
	memory := p.Metric(t, "process_resident_memory_bytes") / (1 << 20)
	t.Logf("%d plugins, %d pods in %.1f s with %d workers: Postern has %.1f MiB of memory", len(o.Plugins), podsToCreate, took.Seconds(), workers, memory)
}

// setUpTogether creates the objects that the plugins read, and returns the namespace.
func setUpTogether(t *testing.T, c *e2e.Cluster) string {
	t.Helper()
	s := newServer(t, c.ControlPlane)
	const ns = "together"
	for _, o := range []object{
		{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": ns, "annotations": object{
			"scheduler.alpha.kubernetes.io/node-selector":        "team=a",
			"scheduler.alpha.kubernetes.io/defaultTolerations":   `[{"key": "team", "operator": "Exists", "effect": "NoSchedule"}]`,
			"scheduler.alpha.kubernetes.io/tolerationsWhitelist": `[{"operator": "Exists"}]`,
		}}},
		{"apiVersion": "v1", "kind": "LimitRange", "metadata": object{"name": "defaults"}, "spec": object{"limits": []object{{
			"type": "Container", "default": object{"cpu": "1", "memory": "1Gi"}, "defaultRequest": object{"cpu": "100m"}, "max": object{"cpu": "2"},
		}}}},
		{"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": object{"name": "standard"}, "value": 1000, "globalDefault": true},
		{"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": object{"name": "special"}, "handler": "special", "overhead": object{"podFixed": object{"cpu": "10m"}}},
	} {
		if err := s.make(t.Context(), o, ns); err != nil {
			t.Fatal(err)
		}
	}
	return ns
}

// together returns a pod that most plugins mutate or validate.
func together(name string, i int) *corev1.Pod {
	special := "special"
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"number": fmt.Sprint(i)}},
		Spec: corev1.PodSpec{
			RuntimeClassName: &special,
			InitContainers:   []corev1.Container{{Name: "first", Image: "first:v1"}},
			Containers:       []corev1.Container{{Name: "app", Image: "app:v1"}, {Name: "proxy", Image: "proxy:v1"}},
		},
	}
}

func calls(t *testing.T, p *e2e.Postern, phase string) float64 {
	t.Helper()
	return p.Metric(t, "postern_webhook_requests_total", `service="/pods"`, fmt.Sprintf("phase=%q", phase))
}

// checkConfigurations checks that exactly one mutating and one validating webhook of the family pods are registered for
// pods.
func checkConfigurations(t *testing.T, api kubernetes.Interface) {
	t.Helper()
	hooks := api.AdmissionregistrationV1()
	mutating, err := hooks.MutatingWebhookConfigurations().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	validating, err := hooks.ValidatingWebhookConfigurations().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range mutating.Items {
		for _, w := range c.Webhooks {
			if isForPods(w.Rules) {
				names = append(names, "mutating "+w.Name)
			}
		}
	}
	for _, c := range validating.Items {
		for _, w := range c.Webhooks {
			if isForPods(w.Rules) {
				names = append(names, "validating "+w.Name)
			}
		}
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.Contains(name, " pods") })
	if want := []string{"mutating pods.postern.dev", "validating pods.postern.dev"}; !slices.Equal(names, want) {
		t.Errorf("The webhooks for pods are %q, want %q", names, want)
	}
}

func isForPods(rules []admissionregistrationv1.RuleWithOperations) bool {
	return slices.ContainsFunc(rules, func(r admissionregistrationv1.RuleWithOperations) bool {
		return r.APIGroups[0] == "" && slices.Contains(r.Resources, "pods")
	})
}

// createAll creates the pods with several workers. It fails the test if a request fails.
func createAll(t *testing.T, api kubernetes.Interface, ns string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var next atomic.Int64
	results := make(chan error, workers)
	for range workers {
		go func() {
			for {
				i := int(next.Add(1))
				if i > podsToCreate {
					results <- nil
					return
				}
				if _, err := api.CoreV1().Pods(ns).Create(ctx, together(fmt.Sprintf("pod-%d", i), i), metav1.CreateOptions{}); err != nil {
					results <- fmt.Errorf("creating pod %d: %w", i, err)
					return
				}
			}
		}()
	}
	var errs []error
	for range workers {
		errs = append(errs, <-results)
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// checkPod checks that a stored pod contains the changes of the plugins.
func checkPod(t *testing.T, api kubernetes.Interface, ns string) {
	t.Helper()
	pods, err := api.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) != podsToCreate {
		t.Errorf("There are %d pods, want %d", len(pods.Items), podsToCreate)
	}
	for _, pod := range pods.Items {
		spec := pod.Spec
		tolerates := slices.ContainsFunc(spec.Tolerations, func(tol corev1.Toleration) bool { return tol.Key == "team" })
		if spec.Containers[0].ImagePullPolicy != corev1.PullAlways || spec.NodeSelector["team"] != "a" || !tolerates ||
			spec.PriorityClassName != "standard" || spec.Containers[1].Resources.Limits.Cpu().String() != "1" || spec.Overhead.Cpu().String() != "10m" {
			t.Fatalf("A plugin has left no trace in pod %s: %+v", pod.Name, spec)
		}
	}
}
