package e2e_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1ac "k8s.io/client-go/applyconfigurations/coordination/v1"

	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/e2e"
)

// forger returns a func that writes and renews the Lease of a replica that does not exist.
func forger(c *e2e.Cluster, annotations map[string]string) func(context.Context) error {
	return func(ctx context.Context) error {
		lease := coordinationv1ac.Lease("forged", e2e.PosternNamespace).WithLabels(map[string]string{"postern.dev/lease": "replica"}).
			WithAnnotations(annotations).WithSpec(coordinationv1ac.LeaseSpec().WithRenewTime(metav1.NowMicro()))
		_, err := c.Admin.CoordinationV1().Leases(e2e.PosternNamespace).Apply(ctx, lease, metav1.ApplyOptions{FieldManager: "somebody", Force: true})
		return err
	}
}

// TestForgedLease has a Lease of a replica that does not exist, which is said to serve and to run nothing. What is registered
// stays. A plugin lets pass what lacks only its own changes, and denies what it forbids.
func TestForgedLease(t *testing.T) {
	t.Parallel()
	c := suite.Start(t, controlplane.Options{APIServerFlags: []string{"--disable-admission-plugins=LimitRanger"}})
	startServing(t, c, e2e.Options{Plugins: []string{"LimitRanger", "AlwaysPullImages"}, Service: true})
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
	forge := forger(c, map[string]string{
		"postern.dev/revision": "0", "postern.dev/term": "0", "postern.dev/digest": "0", "postern.dev/state": "Joined",
		"postern.dev/serves": "", "postern.dev/runs": "",
	})
	e2e.Eventually(t, settleBound, "the forged Lease is believed", func(ctx context.Context) error {
		if err := forge(ctx); err != nil {
			return err
		}
		_, err := c.Admin.CoreV1().Pods(unchanged).Create(ctx, pod("lower"), dryRun())
		return err
	})
	e2e.Throughout(t, time.Second, "what is forbidden is denied", func(ctx context.Context) error {
		return errors.Join(forge(ctx), denied(ctx))
	})
	eventuallySame(t, configsOf(t, c), before)
	if got := c.Audit(t, func(e e2e.AuditEvent) bool {
		return e.Annotations["pods.postern.dev/admitted-without-changes-of"] == "AlwaysPullImages"
	}); len(got) == 0 {
		t.Error("The audit log does not tell which changes the pod lacks")
	}
}
