package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/e2e"
)

// deployed creates the objects of a Deployment with one pod, and returns the options of the process in the pod.
func deployed(t *testing.T, c *e2e.Cluster, name string) e2e.Options {
	t.Helper()
	labels := map[string]string{"app": name}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod("").Spec}
	revision := map[string]string{"deployment.kubernetes.io/revision": "1"}
	d, err := c.Admin.AppsV1().Deployments(e2e.PosternNamespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: revision},
		Spec:       appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return revised(t, c, d, 1)
}

// revised creates the objects of a revision of a Deployment with one pod, and returns the options of the process in the pod.
func revised(t *testing.T, c *e2e.Cluster, d *appsv1.Deployment, revision int) e2e.Options {
	t.Helper()
	hash := strconv.Itoa(revision)
	labels := map[string]string{"app": d.Name, appsv1.DefaultDeploymentUniqueLabelKey: hash}
	template := d.Spec.Template.DeepCopy()
	template.Labels = labels
	set, err := c.Admin.AppsV1().ReplicaSets(e2e.PosternNamespace).Create(t.Context(), &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Name: d.Name + "-" + hash, Annotations: map[string]string{"deployment.kubernetes.io/revision": hash},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		},
		Spec: appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: *template},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return inPod(t, c, set, set.Name)
}

// inPod creates a pod of a ReplicaSet, and returns the options of the process in the pod.
func inPod(t *testing.T, c *e2e.Cluster, set *appsv1.ReplicaSet, name string) e2e.Options {
	t.Helper()
	one := pod(name)
	one.Labels = set.Spec.Template.Labels
	one.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
	if _, err := c.Admin.CoreV1().Pods(e2e.PosternNamespace).Create(t.Context(), one, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	o := alwaysPull()
	o.Env = []string{"POD_NAME=" + name}
	return o
}

// revise gives a Deployment a new revision with one pod, and returns the options of the process in the pod.
func revise(t *testing.T, c *e2e.Cluster, name string, revision int) e2e.Options {
	t.Helper()
	d, err := c.Admin.AppsV1().Deployments(e2e.PosternNamespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d.Annotations["deployment.kubernetes.io/revision"] = strconv.Itoa(revision)
	if d, err = c.Admin.AppsV1().Deployments(e2e.PosternNamespace).Update(t.Context(), d, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	return revised(t, c, d, revision)
}

// TestOthersAreKeptOut has a forged pod of another version, a process on somebody's machine, and a second Deployment in the
// namespace. None of them keeps the first Deployment from registering, or removes what it has registered.
func TestOthersAreKeptOut(t *testing.T) {
	t.Parallel()
	c := suite.Start(t, controlplane.Options{})
	first := startServing(t, c, deployed(t, c, "postern"))
	all := configsOf(t, c)
	before := all.get()
	forgePod(t, c, "postern")
	all.delete()
	e2e.Eventually(t, repairBound, "the configurations are as they were", func(ctx context.Context) error {
		return all.same(ctx, before)
	})
	process := launchKeptOut(t, c, all, before, e2e.Options{})
	process.Stop(t)
	second := launchKeptOut(t, c, all, before, deployed(t, c, "second"))
	if err := c.Admin.AppsV1().Deployments(e2e.PosternNamespace).Delete(t.Context(), "postern", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	first.Stop(t)
	second.AwaitReady(t)
	second.AwaitRegistered(t)
	awaitCalled(t, c)
}

// launchKeptOut starts a Postern that must not become ready, and checks that it changes nothing.
func launchKeptOut(t *testing.T, c *e2e.Cluster, all configs, before map[string]*unstructured.Unstructured, o e2e.Options) *e2e.Postern {
	t.Helper()
	p := c.LaunchPostern(t, o)
	e2e.Eventually(t, settleBound, "the replica says why it is not ready", func(ctx context.Context) error {
		if got := p.Readyz(ctx); !strings.Contains(got, "the webhooks are registered by Deployment postern") {
			return fmt.Errorf("got %s", got)
		}
		return nil
	})
	e2e.Throughout(t, time.Second, "the configurations are as they were, and the replica is not ready", func(ctx context.Context) error {
		if p.Ready(ctx) == nil {
			return errors.New("it is ready")
		}
		return all.same(ctx, before)
	})
	return p
}
