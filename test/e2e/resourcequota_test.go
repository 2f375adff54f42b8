package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/postern-dev/postern/internal/ring"
	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/e2e"
)

const (
	quotaClients = 16
	// quotaAttempts is the number of pods that the clients try to create in a namespace with room for quotaPods.
	quotaAttempts = 2000
	quotaPods     = 500
	quotaDeleted  = 200
	// quotaBound is the maximum time until kube-controller-manager has counted the objects of a namespace.
	quotaBound = time.Minute
)

// withoutQuota are the flags of an API server that does not run ResourceQuota.
var withoutQuota = []string{"--disable-admission-plugins=ResourceQuota"}

// TestQuotaIsCharged runs ResourceQuota in the mode charge, with an API server that does not run ResourceQuota.
func TestQuotaIsCharged(t *testing.T) {
	t.Parallel()
	c := suite.Start(t, controlplane.Options{ControllerManager: true, APIServerFlags: withoutQuota})
	startQuotaReplicas(t, c, "--api-server-plugins=none", charging(t))
	t.Run("a dry run charges nothing", func(t *testing.T) { checkQuotaDryRun(t, c) })
	t.Run("custom resources", func(t *testing.T) { checkQuotaOfCustomResources(t, c) })
}

// TestQuotaIsChargedByThreeReplicas runs ResourceQuota in three replicas of Postern, in the mode charge, with an API
// server that does not run ResourceQuota. Many clients create pods at the same time.
func TestQuotaIsChargedByThreeReplicas(t *testing.T) {
	ring.Second(t, "16 clients keep the processors busy")
	t.Parallel()
	suite.Alone(t)
	c := suite.Start(t, controlplane.Options{ControllerManager: true, APIServerFlags: withoutQuota})
	replicas := startQuotaReplicas(t, c, "--api-server-plugins=none", charging(t))

	t.Run("exactly what the quota allows", func(t *testing.T) {
		q := newQuota(t, c, corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(quotaPods, resource.DecimalSI)})
		q.createAndDelete(t)
		for i, r := range replicas {
			if r.Metric(t, "postern_webhook_requests_total", `service="/quota"`, `verdict="allowed"`) == 0 {
				t.Errorf("Replica %d admitted nothing, so the replicas did not compete", i+1)
			}
		}
	})
	t.Run("a storm of foreign writes", func(t *testing.T) { checkQuotaInStorm(t, c) })
	t.Run("a user in a hurry", func(t *testing.T) { checkQuotaWithHastyUser(t, c) })
	// The last one, because a replica is missing then.
	t.Run("one replica is killed", func(t *testing.T) { checkQuotaWithKill(t, c, replicas[0]) })
}

// TestQuotaIsCheckedBesideTheAPIServer runs ResourceQuota in three replicas of Postern, in the mode check, with an API
// server that also runs ResourceQuota. No object is charged twice.
func TestQuotaIsCheckedBesideTheAPIServer(t *testing.T) {
	ring.Second(t, "16 clients keep the processors busy")
	t.Parallel()
	suite.Alone(t)
	c := suite.Start(t, controlplane.Options{ControllerManager: true})
	replicas := startQuotaReplicas(t, c)
	q := newQuota(t, c, corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(quotaPods, resource.DecimalSI)})
	q.createAndDelete(t)
	var denied float64
	for _, r := range replicas {
		denied += r.Metric(t, "postern_webhook_requests_total", `service="/quota"`, `verdict="denied"`)
	}
	if denied == 0 {
		t.Error("Postern denied nothing")
	}
	for _, e := range c.PosternWrites(t) {
		if e.ObjectRef.Resource == "resourcequotas" {
			t.Errorf("Postern wrote a quota: %+v", e)
		}
	}
}

// charging returns the flag of a configuration with which ResourceQuota charges.
func charging(t *testing.T) string {
	t.Helper()
	return configured(t, `- name: ResourceQuota
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: ResourceQuotaConfiguration, mode: charge}`)
}

// startQuotaReplicas starts three replicas with ResourceQuota behind a balancer, and waits until the API server calls
// them.
func startQuotaReplicas(t *testing.T, c *e2e.Cluster, flags ...string) []*e2e.Postern {
	t.Helper()
	proxy := e2e.StartProxy(t)
	b := startBalancer(t, proxy)
	o := behind(proxy, e2e.Options{Plugins: []string{"ResourceQuota"}, Flags: flags})
	var replicas []*e2e.Postern
	for range 3 {
		replicas = append(replicas, c.LaunchPostern(t, o))
	}
	b.add(replicas...)
	for _, p := range replicas {
		p.AwaitReady(t)
		p.AwaitRegistered(t)
	}
	q := newQuota(t, c, corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")})
	e2e.Eventually(t, settleBound, "Postern denies a pod beyond the quota", func(ctx context.Context) error {
		_, err := c.Admin.CoreV1().Pods(q.namespace).Create(ctx, pod("called"), dryRun())
		if err == nil || !strings.Contains(err.Error(), `.postern.dev" denied the request: `) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
	return replicas
}

// quota is a ResourceQuota with the name team in its own namespace.
type quota struct {
	*e2e.Cluster
	namespace string
	// attempts makes the names of the pods unique.
	attempts atomic.Int64
}

// newQuota creates a quota and waits until kube-controller-manager has counted what is used.
func newQuota(t *testing.T, c *e2e.Cluster, hard corev1.ResourceList) *quota {
	t.Helper()
	q := uncountedQuota(t, c, hard)
	e2e.Eventually(t, quotaBound, "the quota has a status", func(ctx context.Context) error {
		got, err := q.get(ctx)
		if err == nil && len(got.Status.Used) != len(hard) {
			err = fmt.Errorf("it has %v", got.Status.Used)
		}
		return err
	})
	return q
}

func uncountedQuota(t *testing.T, c *e2e.Cluster, hard corev1.ResourceList) *quota {
	t.Helper()
	q := &quota{Cluster: c, namespace: c.Namespace(t)}
	_, err := c.Admin.CoreV1().ResourceQuotas(q.namespace).Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "team"}, Spec: corev1.ResourceQuotaSpec{Hard: hard},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("Creating a quota: %v", err)
	}
	return q
}

func (q *quota) get(ctx context.Context) (*corev1.ResourceQuota, error) {
	return q.Admin.CoreV1().ResourceQuotas(q.namespace).Get(ctx, "team", metav1.GetOptions{})
}

// used returns how much of a resource the quota says is used.
func (q *quota) used(t *testing.T, name corev1.ResourceName) int64 {
	t.Helper()
	got, err := q.get(t.Context())
	if err != nil {
		t.Fatalf("Reading the quota: %v", err)
	}
	quantity := got.Status.Used[name]
	return quantity.Value()
}

// pods returns the names of the pods that exist.
func (q *quota) pods(t *testing.T) []string {
	t.Helper()
	list, err := q.Admin.CoreV1().Pods(q.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatalf("Listing pods: %v", err)
	}
	var names []string
	for _, p := range list.Items {
		names = append(names, p.Name)
	}
	return names
}

// expect checks the number of pods that exist and that the quota says are used.
func (q *quota) expect(t *testing.T, want int) {
	t.Helper()
	if got := len(q.pods(t)); got != want {
		t.Errorf("There are %d pods, want %d", got, want)
	}
	if got := q.used(t, corev1.ResourcePods); got != int64(want) {
		t.Errorf("The quota says that %d pods are used, want %d", got, want)
	}
}

// create attempts to create n pods with many clients, and returns the number of pods that the API server created. Each
// error must be a denial because of the quota, or be tolerated.
func (q *quota) create(t *testing.T, n int, tolerated func(error) bool) int {
	t.Helper()
	var clients sync.WaitGroup
	var begun, created atomic.Int64
	for range quotaClients {
		clients.Go(func() {
			for begun.Add(1) <= int64(n) {
				name := fmt.Sprint("pod-", q.attempts.Add(1))
				_, err := q.Admin.CoreV1().Pods(q.namespace).Create(t.Context(), pod(name), metav1.CreateOptions{})
				switch {
				case err == nil:
					created.Add(1)
				case !isOverQuota(err) && (tolerated == nil || !tolerated(err)):
					t.Errorf("Creating %s: %v", name, err)
					return
				}
			}
		})
	}
	clients.Wait()
	return int(created.Load())
}

func isOverQuota(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota: team, requested: pods=1")
}

// createAndDelete fills the quota, deletes some pods, and fills the quota again.
func (q *quota) createAndDelete(t *testing.T) {
	t.Helper()
	start := time.Now()
	if got := q.create(t, quotaAttempts, nil); got != quotaPods {
		t.Errorf("%d pods were created, want %d", got, quotaPods)
	}
	t.Logf("%d attempts took %.1f s", quotaAttempts, time.Since(start).Seconds())
	q.expect(t, quotaPods)
	for _, name := range q.pods(t)[:quotaDeleted] {
		if err := q.Admin.CoreV1().Pods(q.namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatalf("Deleting pod %s: %v", name, err)
		}
	}
	q.awaitUsed(t, quotaPods-quotaDeleted)
	if got := q.create(t, 2*quotaDeleted, nil); got != quotaDeleted {
		t.Errorf("After the deletion of %d pods %d were created, want as many", quotaDeleted, got)
	}
	q.expect(t, quotaPods)
}

// awaitUsed waits until kube-controller-manager has counted the pods.
func (q *quota) awaitUsed(t *testing.T, want int64) {
	t.Helper()
	e2e.Eventually(t, quotaBound, fmt.Sprintf("the quota says that %d pods are used", want), func(context.Context) error {
		if got := q.used(t, corev1.ResourcePods); got != want {
			return fmt.Errorf("it says %d", got)
		}
		return nil
	})
}

// checkQuotaDryRun checks that a dry run is denied like any other request, and that it is not charged.
func checkQuotaDryRun(t *testing.T, c *e2e.Cluster) {
	t.Helper()
	q := newQuota(t, c, corev1.ResourceList{corev1.ResourcePods: resource.MustParse("2")})
	for i := range 10 {
		if _, err := c.Admin.CoreV1().Pods(q.namespace).Create(t.Context(), pod(fmt.Sprint("dry-", i)), dryRun()); err != nil {
			t.Errorf("Creating a pod in a dry run: %v", err)
		}
	}
	q.expect(t, 0)
	if got := q.create(t, 10, nil); got != 2 {
		t.Errorf("%d pods were created, want 2", got)
	}
	q.expect(t, 2)
	if _, err := c.Admin.CoreV1().Pods(q.namespace).Create(t.Context(), pod("dry"), dryRun()); !isOverQuota(err) {
		t.Errorf("Creating a pod beyond the quota in a dry run returned %v, want a denial", err)
	}
}

// checkQuotaOfCustomResources checks that custom resources are charged. kube-controller-manager may need minutes to
// learn of a new custom resource, so the test counts instead of it.
func checkQuotaOfCustomResources(t *testing.T, c *e2e.Cluster) {
	t.Helper()
	gvr := schema.GroupVersionResource{Group: "settings.postern.dev", Version: "v1alpha1", Resource: "podpresets"}
	name := corev1.ResourceName("count/podpresets." + gvr.Group)
	q := uncountedQuota(t, c, corev1.ResourceList{name: resource.MustParse("2")})
	e2e.Eventually(t, quotaBound, "the quota has a status", func(ctx context.Context) error {
		got, err := q.get(ctx)
		if err == nil && len(got.Status.Hard) == 0 {
			err = errors.New("it has none")
		}
		if err != nil || len(got.Status.Used) > 0 {
			return err
		}
		got.Status.Used = corev1.ResourceList{name: resource.MustParse("0")}
		_, err = c.Admin.CoreV1().ResourceQuotas(q.namespace).UpdateStatus(ctx, got, metav1.UpdateOptions{})
		return err
	})
	presets := c.Dynamic(t, controlplane.Admin).Resource(gvr).Namespace(q.namespace)
	create := func(ctx context.Context, i int) error {
		_, err := presets.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": gvr.GroupVersion().String(), "kind": "PodPreset", "metadata": map[string]any{"name": fmt.Sprint("preset-", i)},
			"spec": map[string]any{"env": []any{map[string]any{"name": "A", "value": "b"}}},
		}}, metav1.CreateOptions{})
		return err
	}
	// Postern observes the quota a moment after its creation, so the first objects may not be charged yet.
	e2e.Eventually(t, quotaBound, "custom resources are charged", func(ctx context.Context) error {
		_ = presets.Delete(ctx, "preset-0", metav1.DeleteOptions{})
		if err := create(ctx, 0); err != nil {
			return err
		}
		if got := q.used(t, name); got != 1 {
			return fmt.Errorf("the quota says %d", got)
		}
		return nil
	})
	if err := create(t.Context(), 1); err != nil {
		t.Fatalf("Creating a custom resource: %v", err)
	}
	err := create(t.Context(), 2)
	if want := "exceeded quota: team, requested: " + string(name) + "=1, used: " + string(name) + "=2"; !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), want) {
		t.Errorf("Creating a custom resource beyond the quota returned %v, want a denial with %q", err, want)
	}
}

// checkQuotaWithKill kills a replica while clients create pods. A charge of this replica may remain without a pod until
// kube-controller-manager counts again. There are never too many pods.
func checkQuotaWithKill(t *testing.T, c *e2e.Cluster, replica *e2e.Postern) {
	t.Helper()
	q := newQuota(t, c, corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(quotaPods, resource.DecimalSI)})
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		for q.attempts.Load() < quotaPods/2 && t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
		replica.Kill()
	}()
	var failed atomic.Int64
	got := q.create(t, quotaAttempts, func(err error) bool {
		failed.Add(1)
		return apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook")
	})
	<-killed
	t.Logf("%d pods were created, %d attempts failed because of the killed replica", got, failed.Load())
	pods, used := len(q.pods(t)), q.used(t, corev1.ResourcePods)
	if pods > quotaPods || used != quotaPods || int64(pods) > used {
		t.Errorf("There are %d pods, and the quota says %d; want %d in the quota and no more pods", pods, used, quotaPods)
	}
	// The controller counts every five minutes, and when spec.hard changes.
	patch := []byte(`{"spec":{"hard":{"configmaps":"100"}}}`)
	if _, err := c.Admin.CoreV1().ResourceQuotas(q.namespace).Patch(t.Context(), "team", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatalf("Changing the quota: %v", err)
	}
	q.awaitUsed(t, int64(pods))
	if got := q.create(t, quotaAttempts/10, nil); got != quotaPods-pods {
		t.Errorf("%d more pods were created, want %d", got, quotaPods-pods)
	}
	q.expect(t, quotaPods)
}
