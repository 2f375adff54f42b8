package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/e2e"
)

// forgePod creates a pod of a Deployment that says that it is of another version, and is none of its pods.
func forgePod(t *testing.T, c *e2e.Cluster, deployment string) {
	t.Helper()
	forged := pod("forged")
	forged.Labels = map[string]string{"app": deployment, "pod-template-hash": "forged"}
	if _, err := c.Admin.CoreV1().Pods(e2e.PosternNamespace).Create(t.Context(), forged, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestForgedPod has a pod that is said to be one of another version of Postern. A plugin then lets pass what lacks only its own
// changes, and denies what it forbids. What is registered stays.
func TestForgedPod(t *testing.T) {
	t.Parallel()
	c := suite.Start(t, controlplane.Options{APIServerFlags: []string{"--disable-admission-plugins=LimitRanger"}})
	o := deployed(t, c, "postern")
	o.Plugins, o.Service = []string{"LimitRanger", "AlwaysPullImages"}, true
	startServing(t, c, o)
	ns := c.Namespace(t)
	limits := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "limits"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
		Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
	}}}}
	if _, err := c.Admin.CoreV1().LimitRanges(ns).Create(t.Context(), limits, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	large := pod("large")
	large.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
	denied := func(ctx context.Context) error {
		_, err := c.Admin.CoreV1().Pods(ns).Create(ctx, large, dryRun())
		if apierrors.IsForbidden(err) && strings.HasSuffix(err.Error(), "maximum cpu usage per Container is 1, but limit is 2") {
			return nil
		}
		return errors.Join(errors.New("the pod is not denied"), err)
	}
	e2e.Eventually(t, settleBound, "the LimitRange is known", denied)
	unchanged := deniesLaterChanges(t, c) // As if another replica had answered the mutating call.
	before := configsOf(t, c).get()
	create := func(ctx context.Context) error {
		_, err := c.Admin.CoreV1().Pods(unchanged).Create(ctx, pod("lower"), dryRun())
		return err
	}
	e2e.Throughout(t, 3*time.Second, "the missing changes are denied", func(ctx context.Context) error {
		if err := create(ctx); !apierrors.IsForbidden(err) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
	forgePod(t, c, "postern")
	e2e.Eventually(t, settleBound, "the forged pod is seen", create)
	e2e.Throughout(t, time.Second, "what is forbidden is denied", denied)
	eventuallySame(t, configsOf(t, c), before)
	if got := c.Audit(t, func(e e2e.AuditEvent) bool {
		return e.Annotations["pods.postern.dev/admitted-without-changes-of"] == "AlwaysPullImages"
	}); len(got) == 0 {
		t.Error("The audit log does not tell which changes the pod lacks")
	}
}
