package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/e2e"
)

// estimating returns the options of a Postern that runs only InitialResources.
func estimating(t *testing.T, configuration string, flags ...string) e2e.Options {
	t.Helper()
	return e2e.Options{Plugins: []string{"InitialResources"}, Flags: append(flags, configured(t, "- {name: InitialResources, configuration: "+configuration+"}"))}
}

// requested returns an error unless the pod requests these resources, which the annotation describes.
func requested(p *corev1.Pod, cpu, memory, annotation string) error {
	requests := p.Spec.Containers[0].Resources.Requests
	if got := requests.Cpu().String() + " " + requests.Memory().String(); got != cpu+" "+memory {
		return fmt.Errorf("got the requests %s, want %s %s", got, cpu, memory)
	}
	if got := p.Annotations["kubernetes.io/initial-resources"]; got != annotation {
		return fmt.Errorf("got the annotation %q, want %q", got, annotation)
	}
	return nil
}

// TestInitialResources has a later webhook add a container, so that the API server calls Postern twice.
func TestInitialResources(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	ns := c.Namespace(t)
	c.StartPostern(t, estimating(t, `{file: {usage: [{image: app, cpu: 250m, memory: 300M}, {image: sidecar, cpu: 10m}]}}`))
	const set = "Initial Resources plugin set: "
	pods := c.Admin.CoreV1().Pods(ns)
	e2e.Eventually(t, settleBound, "the API server calls Postern", func(ctx context.Context) error {
		made, err := pods.Create(ctx, pod("called"), dryRun())
		if err != nil {
			return err
		}
		return requested(made, "250m", "300M", set+"cpu, memory request for container app")
	})
	inject := e2e.StartWebhook(t, `[{"op": "add", "path": "/spec/initContainers", "value":
		[{"name": "sidecar", "image": "sidecar", "restartPolicy": "Always"}]}]`)
	c.Register(t, inject, "zz-inject", ns, admissionregistrationv1.NeverReinvocationPolicy)
	awaitWebhook(t, c, inject, ns)
	made, err := pods.Create(t.Context(), pod("web"), metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("Creating a pod: %v", err)
	}
	if err := requested(made, "250m", "300M", set+"cpu request for init container sidecar; cpu, memory request for container app"); err != nil {
		t.Error(err)
	}
	if got := made.Spec.InitContainers[0].Resources.Requests.Cpu().String(); got != "10m" {
		t.Errorf("The injected container requests %s, want 10m", got)
	}
	if made.Status.QOSClass != corev1.PodQOSBurstable {
		t.Errorf("The pod is %s, want Burstable", made.Status.QOSClass)
	}
}

// autoscalerDefinition has as much of the definition of VerticalPodAutoscalers as the plugin reads.
const autoscalerDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: verticalpodautoscalers.autoscaling.k8s.io
  annotations: {api-approved.kubernetes.io: "unapproved, for a test"}
spec:
  group: autoscaling.k8s.io
  scope: Namespaced
  names: {plural: verticalpodautoscalers, singular: verticalpodautoscaler, kind: VerticalPodAutoscaler, listKind: VerticalPodAutoscalerList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

const autoscaler = `
apiVersion: autoscaling.k8s.io/v1
kind: VerticalPodAutoscaler
metadata: {name: web, namespace: NAMESPACE}
spec: {targetRef: {apiVersion: apps/v1, kind: Deployment, name: web}, updatePolicy: {updateMode: "Off"}}
status: {recommendation: {containerRecommendations: [{containerName: app, target: {cpu: 25m, memory: 262144k}}]}}
`

// TestInitialResourcesOfADeployment has the recommendation for the Deployment apply to the pods that the controllers
// create.
func TestInitialResourcesOfADeployment(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	ns := c.Namespace(t)
	c.Apply(t, autoscalerDefinition)
	wait := c.Kubectl(t.Context(), controlplane.Admin, "wait", "--for=condition=Established", "--timeout=30s", "crd/verticalpodautoscalers.autoscaling.k8s.io")
	if out, err := wait.CombinedOutput(); err != nil {
		t.Fatalf("Waiting for the definition: %v: %s", err, out)
	}
	c.Apply(t, strings.ReplaceAll(autoscaler, "NAMESPACE", ns))
	p := c.StartPostern(t, estimating(t, `{}`, "--ir-data-source=vpa"))
	e2e.Eventually(t, settleBound, "the API server calls Postern", func(ctx context.Context) error {
		_, err := c.Admin.CoreV1().Pods(ns).Create(ctx, pod("called"), dryRun())
		if p.Metric(t, "postern_webhook_requests_total", `service="/pods"`) == 0 {
			return errors.Join(errors.New("it does not"), err)
		}
		return nil
	})
	labels := map[string]string{"app": "web"}
	_, err := c.Admin.AppsV1().Deployments(ns).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(3)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod("").Spec},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("Creating a Deployment: %v", err)
	}
	e2e.Eventually(t, settleBound, "all pods have the recommendation", func(ctx context.Context) error {
		list, err := c.Admin.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) != 3 {
			return fmt.Errorf("there are %d pods, %w", len(list.Items), err)
		}
		for i := range list.Items {
			if err := requested(&list.Items[i], "25m", "262144k", "Initial Resources plugin set: cpu, memory request for container app"); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestInitialResourcesAreNotWaitedFor has a Prometheus that does not answer, and answers later.
func TestInitialResourcesAreNotWaitedFor(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	ns := c.Namespace(t)
	var asked atomic.Int64
	answer := make(chan struct{})
	prometheus := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		select {
		case <-answer:
		case <-r.Context().Done():
			return
		}
		value := "0.25"
		if strings.HasPrefix(r.FormValue("query"), "sum(") {
			value = "100"
		} else if strings.Contains(r.FormValue("query"), "memory") {
			value = "1e6"
		}
		_, _ = fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,%q]}]}}`, value)
	}))
	defer prometheus.Close()
	p := c.StartPostern(t, estimating(t, `{prometheus: {url: "`+prometheus.URL+`", timeout: 1m}}`))
	pods := c.Admin.CoreV1().Pods(ns)
	e2e.Eventually(t, settleBound, "Postern asks Prometheus", func(ctx context.Context) error {
		_, err := pods.Create(ctx, pod("called"), dryRun())
		if asked.Load() == 0 {
			return errors.Join(errors.New("it does not"), err)
		}
		return nil
	})
	for i := range 5 {
		made, err := pods.Create(t.Context(), podWith(fmt.Sprint("web-", i), func(s *corev1.PodSpec) { s.Containers[0].Image = fmt.Sprint("image-", i) }), metav1.CreateOptions{})
		if err != nil {
			t.Fatalf("Creating a pod while Prometheus does not answer: %v", err)
		}
		if err := requested(made, "0", "0", ""); err != nil {
			t.Error(err)
		}
	}
	m, labels := p.Metrics(t), `name="InitialResources"`
	const duration = "postern_admission_controller_admission_duration_seconds"
	if all, quick := m.Sum(t, duration+"_count", labels), m.Sum(t, duration+"_bucket", labels, `le="0.5"`); quick != all || all < 6 {
		t.Errorf("Of %v calls, %v took less than half a second, want all", all, quick)
	}
	if mean := m.Sum(t, duration+"_sum", labels) / m.Sum(t, duration+"_count", labels); mean > 0.2 {
		t.Errorf("A call took %v seconds on average, want less than 0.2", mean)
	}
	close(answer)
	e2e.Eventually(t, settleBound, "a later pod has the estimate", func(ctx context.Context) error {
		made, err := pods.Create(ctx, pod("later"), dryRun())
		if err != nil {
			return err
		}
		return requested(made, "250m", "1M", "Initial Resources plugin set: cpu, memory request for container app")
	})
}
