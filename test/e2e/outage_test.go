package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/postern-dev/postern/test/e2e"
)

func TestFailurePolicyDecidesWhilePosternIsDown(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	pods := c.Admin.CoreV1().Pods(c.Namespace(t))
	t.Run("Fail", func(t *testing.T) {
		p := startServing(t, c, alwaysPull())
		already := pod("already")
		already.Spec.Containers[0].ImagePullPolicy = "Always"
		if err := pullsAlways(pods.Create(t.Context(), already, metav1.CreateOptions{})); err != nil {
			t.Errorf("Creating a pod that pulls always: %v", err)
		}
		p.Kill()
		_, err := pods.Create(t.Context(), pod("refused"), metav1.CreateOptions{})
		if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), `failed calling webhook "pods.postern.dev"`) {
			t.Errorf("Creating a pod returned %v, want an internal error about the webhook", err)
		}
		if _, err := pods.Get(t.Context(), "refused", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("Reading the pod that was refused returned %v, want not found", err)
		}
		// The API server admits an update without a new image without a webhook call.
		label := []byte(`{"metadata": {"labels": {"a": "b"}}}`)
		if err := pullsAlways(pods.Patch(t.Context(), "already", types.MergePatchType, label, metav1.PatchOptions{})); err != nil {
			t.Errorf("Labelling a pod that pulls always: %v", err)
		}
		if err := isUnchanged(c.Admin.CoreV1().Pods(e2e.PosternNamespace).Create(t.Context(), pod("ours"), dryRun())); err != nil {
			t.Errorf("Creating a pod in Postern's own namespace: %v", err)
		}
	})
	t.Run("Ignore", func(t *testing.T) {
		startServing(t, c, alwaysPull("--failure-policy=Ignore")).Kill()
		// The API server may observe the mutating configuration a moment before the validating configuration.
		e2e.Eventually(t, settleBound, "a pod is admitted", func(ctx context.Context) error {
			return isUnchanged(pods.Create(ctx, pod("admitted"), metav1.CreateOptions{}))
		})
	})
}

// TestOutageOfTheAPIServer cuts the connections from Postern to the API server. The API server can still call Postern.
func TestOutageOfTheAPIServer(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	server := strings.TrimPrefix(c.URL(), "https://")
	way := e2e.StartProxy(t, server)
	o := e2e.Options{Plugins: []string{"AlwaysPullImages", "PodNodeSelector"}, Kubeconfig: c.PosternKubeconfig(t, "https://"+way.Addr())}
	known := selecting(t, c)
	p := startServing(t, c, o)
	selectsNode(t, c, known)
	all := configsOf(t, c)
	before := all.get()
	// New connections are accepted, and never answered.
	silence := e2e.Loopback(e2e.FreePort(t))
	e2e.StartSilence(t, silence)
	way.Cut()
	way.To(silence)
	all.edit(`[{"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 20}]`)
	e2e.Throughout(t, calm, "Postern is ready and decides by its caches during the outage", func(ctx context.Context) error {
		if err := p.Ready(ctx); err != nil {
			return err
		}
		return hasSelector(c.Admin.CoreV1().Pods(known).Create(ctx, pod("web"), dryRun()))
	})
	if err := all.same(t.Context(), before); err == nil {
		t.Error("The configurations were repaired during the outage: nothing was cut.")
	}
	unknown := selecting(t, c)
	start := time.Now()
	_, err := c.Admin.CoreV1().Pods(unknown).Create(t.Context(), pod("web"), dryRun())
	if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), `failed calling webhook "pods.postern.dev"`) || strings.Contains(err.Error(), "Client.Timeout") {
		t.Errorf("Creating a pod in a namespace that Postern does not know returned %v, want an internal error of Postern", err)
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("The answer took %v, which is longer than the timeout of the webhook", took)
	}
	way.Cut()
	way.To(server)
	selectsNode(t, c, unknown)
	e2e.Eventually(t, outageBound, "the configurations are repaired after the outage", func(ctx context.Context) error {
		return all.same(ctx, before)
	})
	keepCalm(t, c)
}

// selecting creates a namespace with a node selector for PodNodeSelector.
func selecting(t *testing.T, c *e2e.Cluster) string {
	t.Helper()
	ns := c.Namespace(t)
	patch := []byte(`{"metadata": {"annotations": {"scheduler.alpha.kubernetes.io/node-selector": "disk=ssd"}}}`)
	if _, err := c.Admin.CoreV1().Namespaces().Patch(t.Context(), ns, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatalf("Annotating namespace %s: %v", ns, err)
	}
	return ns
}

// selectsNode waits until new pods in the namespace have its node selector.
func selectsNode(t *testing.T, c *e2e.Cluster, ns string) {
	t.Helper()
	e2e.Eventually(t, outageBound, "a pod has the node selector of its namespace", func(ctx context.Context) error {
		return hasSelector(c.Admin.CoreV1().Pods(ns).Create(ctx, pod("web"), dryRun()))
	})
}

func hasSelector(pod *corev1.Pod, err error) error {
	if err == nil && pod.Spec.NodeSelector["disk"] != "ssd" {
		err = fmt.Errorf("the pod has the node selector %v", pod.Spec.NodeSelector)
	}
	return err
}
