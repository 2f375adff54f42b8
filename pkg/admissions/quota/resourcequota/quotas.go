package resourcequota

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/utils/lru"
)

// maxWritten bounds the quotas that are remembered because this process wrote them. A forgotten one costs a conflict
// and a read.
const maxWritten = 1000

// quotas are the quotas of the cluster: a cache that also knows what this process has written or read since.
type quotas struct {
	cached corev1listers.ResourceQuotaLister
	client corev1client.ResourceQuotasGetter
	// written holds quotas that are newer than the cache, by namespace and name.
	written *lru.Cache
}

func newQuotas(cached corev1listers.ResourceQuotaLister, client corev1client.ResourceQuotasGetter) *quotas {
	return &quotas{cached: cached, client: client, written: lru.New(maxWritten)}
}

// in returns the quotas of a namespace, ordered by name. The caller may replace their fields, and must not modify what
// these point to.
func (q *quotas) in(namespace string) ([]corev1.ResourceQuota, error) {
	found, err := q.cached.ResourceQuotas(namespace).List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing the quotas of a namespace: %w", err)
	}
	out := make([]corev1.ResourceQuota, 0, len(found))
	for _, f := range found {
		out = append(out, *q.newest(f))
	}
	return sorted(out), nil
}

func sorted(quotas []corev1.ResourceQuota) []corev1.ResourceQuota {
	slices.SortFunc(quotas, func(a, b corev1.ResourceQuota) int { return cmp.Compare(a.Name, b.Name) })
	return quotas
}

// newest returns the remembered quota if it is newer than the cached one.
func (q *quotas) newest(cached *corev1.ResourceQuota) *corev1.ResourceQuota {
	key := cached.Namespace + "/" + cached.Name
	value, ok := q.written.Get(key)
	if !ok {
		return cached
	}
	written, ok := value.(*corev1.ResourceQuota)
	if !ok {
		return cached
	}
	order, err := resourceversion.CompareResourceVersion(written.ResourceVersion, cached.ResourceVersion)
	if err != nil || order <= 0 {
		q.written.Remove(key)
		return cached
	}
	return written
}

func (q *quotas) remember(quota *corev1.ResourceQuota) {
	q.written.Add(quota.Namespace+"/"+quota.Name, quota)
}

// live returns the quotas of a namespace in the API server, ordered by name. It remembers those that are named.
func (q *quotas) live(ctx context.Context, namespace string, names []string) ([]corev1.ResourceQuota, error) {
	list, err := q.client.ResourceQuotas(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the quotas of a namespace again: %w", err)
	}
	for i := range list.Items {
		if slices.Contains(names, list.Items[i].Name) {
			q.remember(list.Items[i].DeepCopy())
		}
	}
	return sorted(list.Items), nil
}

// write stores status.used of a quota. Its error is a Conflict if the quota is not the newest.
func (q *quotas) write(ctx context.Context, quota *corev1.ResourceQuota) error {
	written, err := q.client.ResourceQuotas(quota.Namespace).UpdateStatus(ctx, quota, metav1.UpdateOptions{})
	if err != nil {
		return err // The caller looks at the reason.
	}
	q.remember(written)
	return nil
}
