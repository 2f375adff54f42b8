package e2e_test

import (
	"context"
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
	"k8s.io/apimachinery/pkg/types"

	"github.com/postern-dev/postern/test/e2e"
)

const (
	// stormPods is the number of pods that are created while others interfere.
	stormPods = 200
	// stormWriters is the number of foreign writers of a quota, and of clients in a hurry.
	stormWriters = 2
	// timeLeft is a time after which a webhook with the default time-out of 10 s still has time left.
	timeLeft = 8 * time.Second
)

// checkQuotaInStorm creates pods while other writers change the status of the quota all the time. No request fails that
// has time left.
func checkQuotaInStorm(t *testing.T, c *e2e.Cluster) {
	t.Helper()
	q := newQuota(t, c, corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(2*stormPods, resource.DecimalSI)})
	var writes atomic.Int64
	stop := meanwhile(t, func(ctx context.Context) {
		patch := fmt.Appendf(nil, `{"status":{"used":{"count/storms.example.com":"%d"}}}`, writes.Add(1))
		_, err := c.Admin.CoreV1().ResourceQuotas(q.namespace).Patch(ctx, "team", types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		if err != nil && ctx.Err() == nil {
			t.Errorf("Writing the status of a quota: %v", err)
		}
	})
	created, late := q.createPatiently(t)
	stop()
	t.Logf("%d pods were created during %d foreign writes", created, writes.Load())
	q.expectCharged(t, created, late)
}

// checkQuotaWithHastyUser creates pods while a user creates others with ?timeout=1s, and while other writers interfere. No
// request of anybody else fails that has time left.
func checkQuotaWithHastyUser(t *testing.T, c *e2e.Cluster) {
	t.Helper()
	q := newQuota(t, c, corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(100*stormPods, resource.DecimalSI)})
	var writes, hasty, failed atomic.Int64
	stopWriters := meanwhile(t, func(ctx context.Context) {
		patch := fmt.Appendf(nil, `{"status":{"used":{"count/storms.example.com":"%d"}}}`, writes.Add(1))
		_, _ = c.Admin.CoreV1().ResourceQuotas(q.namespace).Patch(ctx, "team", types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	})
	stopUser := meanwhile(t, func(ctx context.Context) {
		err := c.Admin.CoreV1().RESTClient().Post().Namespace(q.namespace).Resource("pods").Timeout(time.Second).
			Body(pod(fmt.Sprint("hasty-", hasty.Add(1)))).Do(ctx).Error()
		if err != nil {
			failed.Add(1)
		}
	})
	created, late := q.createPatiently(t)
	stopUser()
	stopWriters()
	t.Logf("%d pods were created; of %d requests with a time-out of 1 s %d failed", created, hasty.Load(), failed.Load())
	q.expectCharged(t, created+int(hasty.Load()-failed.Load()), late+int(failed.Load()))
}

// expectCharged checks that every pod is charged. A request that failed may have been charged, and may even have created
// a pod, because its client did not wait for the answer.
func (q *quota) expectCharged(t *testing.T, created, failed int) {
	t.Helper()
	pods, used := len(q.pods(t)), int(q.used(t, corev1.ResourcePods))
	if pods < created || pods > used || used > created+failed {
		t.Errorf("There are %d pods, and the quota says %d, want at least %d and at most %d", pods, used, created, created+failed)
	}
}

// meanwhile calls f again and again, in several goroutines, until stop is called.
func meanwhile(t *testing.T, f func(context.Context)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range stormWriters {
		all.Go(func() {
			for ctx.Err() == nil {
				f(ctx)
			}
		})
	}
	return func() {
		cancel()
		all.Wait()
	}
}

// createPatiently creates pods with many clients. It returns how many were created, and how many requests failed at their
// deadline. No request may fail that has time left.
func (q *quota) createPatiently(t *testing.T) (int, int) {
	t.Helper()
	var clients sync.WaitGroup
	var begun, created, late atomic.Int64
	for range quotaClients {
		clients.Go(func() {
			for begun.Add(1) <= stormPods {
				name := fmt.Sprint("pod-", q.attempts.Add(1))
				start := time.Now()
				_, err := q.Admin.CoreV1().Pods(q.namespace).Create(t.Context(), pod(name), metav1.CreateOptions{})
				switch took := time.Since(start); {
				case err == nil:
					created.Add(1)
				case took < timeLeft:
					t.Errorf("Creating %s failed after %v: %v", name, took, err)
				case apierrors.IsConflict(err) && !strings.Contains(err.Error(), "try again"):
					t.Errorf("Creating %s failed with a conflict that does not say what to do: %v", name, err)
				default:
					late.Add(1)
				}
			}
		})
	}
	clients.Wait()
	if late := late.Load(); late > 0 {
		t.Logf("%d requests failed at their deadline", late)
	}
	return int(created.Load()), int(late.Load())
}
