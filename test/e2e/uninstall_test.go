package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/e2e"
)

func TestUninstallWhilePosternRuns(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	p := c.StartPostern(t, alwaysPull())
	uninstall(t, c)
	e2e.Throughout(t, calm, "the running Postern leaves the configurations deleted", configsOf(t, c).gone)
	if err := p.Ready(t.Context()); err != nil {
		t.Errorf("The running Postern is not ready any more: %v", err)
	}
	if got := p.Metric(t, "postern_webhook_registered"); got != 0 {
		t.Errorf("Got %v registered webhook configurations of the running Postern, want none", got)
	}
	p.Stop(t)
	// A Postern that starts later does not overrule the uninstall either.
	p = c.LaunchPostern(t, alwaysPull())
	p.AwaitReady(t)
	e2e.Throughout(t, calm, "the new Postern leaves the configurations deleted", configsOf(t, c).gone)
	if err := c.UndoUninstall(t.Context()); err != nil {
		t.Fatalf("Removing the annotation: %v", err)
	}
	p.AwaitRegistered(t)
	awaitCalled(t, c)
	keepCalm(t, c)
}

func TestUninstallWhileNoPosternRuns(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	c.StartPostern(t, alwaysPull()).Stop(t)
	uninstall(t, c)
	if err := isUnchanged(c.Admin.CoreV1().Pods(c.Namespace(t)).Create(t.Context(), pod("web"), metav1.CreateOptions{})); err != nil {
		t.Errorf("Creating a pod: %v", err)
	}
	if err := c.UndoUninstall(t.Context()); err != nil {
		t.Fatalf("Removing the annotation: %v", err)
	}
	startServing(t, c, alwaysPull())
	// A second uninstall finds no objects to delete, and this is not an error.
	uninstall(t, c)
	if code, said := c.RunPostern(t, "uninstall", "--kubeconfig="+c.Kubeconfig(controlplane.Admin)); code != 0 {
		t.Errorf("Uninstalling what is uninstalled exited with %d: %s", code, said)
	}
}

// TestHelmUninstalls runs the command of the Job that Helm runs before it deletes a release, with the permissions of that
// Job. It does nothing before Helm uninstalls the release. The replicas of the deleted Deployment do not register again, and
// a later installation does.
func TestHelmUninstalls(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	w := &world{Cluster: c}
	install := func(name string) *e2e.Postern {
		o := alwaysPull()
		o.Service, o.Env = true, []string{"POD_NAME=" + w.posternPod(t, name)}
		return startServing(t, c, o)
	}
	hook, err := os.ReadFile(filepath.Join("testdata", "uninstall.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	c.Apply(t, string(hook))
	before := install("postern")
	job := func(want string) {
		t.Helper()
		code, said := c.RunPostern(t, "uninstall", "--deployment=postern", "--helm-release=postern", "--kubeconfig="+c.AccountKubeconfig(t, "postern-uninstall"))
		if code != 0 || !strings.Contains(said, want) {
			t.Fatalf("postern uninstall exited with %d, and said %q, want %q in it", code, said, want)
		}
	}
	job("Helm did not install the Deployment postern")
	awaitCalled(t, c)
	secrets := c.Admin.CoreV1().Secrets(e2e.PosternNamespace)
	release := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Name: "sh.helm.release.v1.postern.v1", Labels: map[string]string{"owner": "helm", "name": "postern", "version": "1", "status": "uninstalling"},
	}}
	if _, err := secrets.Create(t.Context(), release, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	job("validatingwebhookconfigurations/postern-pods deleted")
	if err := secrets.Delete(t.Context(), release.Name, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	e2e.Throughout(t, calm, "the running Postern leaves the configurations deleted", configsOf(t, c).gone)
	deployments := c.Admin.AppsV1().Deployments(e2e.PosternNamespace)
	if err := deployments.Delete(t.Context(), "postern", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	before.Stop(t)
	e2e.Eventually(t, settleBound, "the pods of the Deployment are gone", func(ctx context.Context) error {
		pods, err := c.Admin.CoreV1().Pods(e2e.PosternNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app=postern"})
		if err == nil && len(pods.Items) > 0 {
			err = fmt.Errorf("there are %d", len(pods.Items))
		}
		return err
	})
	install("postern")
	if err := deployments.Delete(t.Context(), "postern", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// uninstall runs the uninstall command and checks its output and its effect.
func uninstall(t *testing.T, c *e2e.Cluster) {
	t.Helper()
	code, said := c.RunPostern(t, "uninstall", "--kubeconfig="+c.Kubeconfig(controlplane.Admin))
	if code != 0 {
		t.Fatalf("postern uninstall exited with %d: %s", code, said)
	}
	for _, want := range []string{
		"mutatingwebhookconfigurations/postern-pods deleted\n", "validatingwebhookconfigurations/postern-pods deleted\n",
		"secret/postern-ca deleted from namespace postern-system\n",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("postern uninstall said %q, want %q in it", said, want)
		}
	}
	if err := configsOf(t, c).gone(t.Context()); err != nil {
		t.Errorf("After postern uninstall: %v", err)
	}
	_, err := c.Admin.CoreV1().Secrets(e2e.PosternNamespace).Get(t.Context(), e2e.SecretName, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("After postern uninstall, reading the Secret of the CA returned %v, want not found", err)
	}
}
