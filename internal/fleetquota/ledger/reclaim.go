package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	quotav1alpha1 "github.com/postern-dev/postern/pkg/apis/quota/v1alpha1"
)

// missedReports is the number of reports that a cluster must miss before its allowance can be reclaimed.
const missedReports = 3

// ErrNoAllowance is returned if a cluster has no allowance.
var ErrNoAllowance = errors.New("the cluster has no allowance")

// Reclaim removes the allowance of a cluster that does not exist any more, and returns the allowance. It waits for the
// time of three reports, measured by the clock of the caller, and returns an error if the cluster reports in the
// meantime. wait waits for a duration.
//
// A cluster that still runs and cannot reach the hub would continue to use the removed allowance.
func Reclaim(ctx context.Context, hub Hub, quota, cluster string, wait func(context.Context, time.Duration) error) (corev1.ResourceList, error) {
	q, err := hub.Get(ctx, quota)
	if err != nil {
		return nil, fmt.Errorf("reading fleet quota %s: %w", quota, err)
	}
	first := find(q, cluster)
	if first == nil {
		return nil, fmt.Errorf("fleet quota %s: cluster %s: %w", quota, cluster, ErrNoAllowance)
	}
	if err := wait(ctx, Silence(first)); err != nil {
		return nil, err
	}
	for {
		if q, err = hub.Get(ctx, quota); err != nil {
			return nil, fmt.Errorf("reading fleet quota %s: %w", quota, err)
		}
		now := find(q, cluster)
		if now == nil {
			return nil, fmt.Errorf("fleet quota %s: cluster %s: %w", quota, cluster, ErrNoAllowance)
		}
		if now.Heartbeat != first.Heartbeat || now.Sequence != first.Sequence {
			return nil, fmt.Errorf("fleet quota %s: cluster %s is alive: it has written to the hub within the last %v", quota, cluster, Silence(first))
		}
		q.Status.Clusters = slices.DeleteFunc(q.Status.Clusters, func(c quotav1alpha1.ClusterAllowance) bool { return c.Name == cluster })
		total(q)
		_, err := hub.Update(ctx, q)
		if err == nil {
			return first.Allowance, nil
		}
		if !apierrors.IsConflict(err) {
			return nil, fmt.Errorf("writing fleet quota %s: %w", quota, err)
		}
	}
}

// Silence returns the time for which a cluster must not write to the hub before its allowance can be reclaimed.
func Silence(c *quotav1alpha1.ClusterAllowance) time.Duration {
	return missedReports * max(time.Duration(c.HeartbeatSeconds), 1) * time.Second
}

// Withdraw removes the entry of a cluster that the quota does not cover any more. It keeps the entry if it belongs to
// another cluster with the same name.
func Withdraw(ctx context.Context, hub Hub, quota, cluster string, id types.UID) error {
	for {
		q, err := hub.Get(ctx, quota)
		if err != nil {
			return unlessNotFound(err)
		}
		if !Has(q, cluster, id) {
			return nil
		}
		q.Status.Clusters = slices.DeleteFunc(q.Status.Clusters, func(c quotav1alpha1.ClusterAllowance) bool { return c.Name == cluster })
		total(q)
		if _, err = hub.Update(ctx, q); !apierrors.IsConflict(err) {
			return unlessNotFound(err)
		}
	}
}

// Has reports whether a quota has an entry of a cluster.
func Has(q *quotav1alpha1.FleetQuota, cluster string, id types.UID) bool {
	e := find(q, cluster)
	return e != nil && (e.ID == "" || id == "" || e.ID == id)
}

func unlessNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
