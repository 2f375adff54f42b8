package limitranger

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/cache"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"

	"github.com/postern-dev/postern/internal/reads"
	"github.com/postern-dev/postern/pkg/admit"
)

const (
	// recentNamespaces and recentTTL bound the cache of live lists.
	recentNamespaces = 10000
	recentTTL        = 30 * time.Second
	// listTimeout bounds a live list. A live list outlives the request that started
	// it.
	listTimeout = 10 * time.Second
)

// ranges finds the LimitRanges of a namespace in the informer's cache. If the cache
// has none, ranges asks the API server, because a client that creates a namespace,
// its LimitRange and a pod at once is faster than the watch. The live answer is
// cached, because most namespaces have no LimitRange.
type ranges struct {
	lister corev1listers.LimitRangeLister
	client corev1client.LimitRangesGetter
	recent *cache.LRUExpireCache
	group  singleflight.Group
}

func newRanges(d admit.Deps) *ranges {
	informer := d.Informers.Core().V1().LimitRanges()
	informer.Informer()
	return &ranges{
		lister: informer.Lister(),
		client: d.Client.CoreV1(),
		recent: cache.NewLRUExpireCacheWithClock(recentNamespaces, d.Clock),
	}
}

// of returns the LimitRanges of a namespace, sorted by name. All requests share
// them, so callers must not modify them.
func (l *ranges) of(ctx context.Context, namespace string) ([]*corev1.LimitRange, error) {
	items, err := l.lister.LimitRanges(namespace).List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing the limit ranges of namespace %s in the cache: %w", namespace, err)
	}
	if len(items) == 0 {
		return l.live(ctx, namespace)
	}
	// The informer has caught up. The cached answer must not be used again after the
	// last LimitRange is deleted.
	l.recent.Remove(namespace)
	sortByName(items)
	return items, nil
}

// live returns the LimitRanges in the API server, at most 30 seconds old. Concurrent
// requests share one call. The call therefore outlives the request that started it.
func (l *ranges) live(ctx context.Context, namespace string) ([]*corev1.LimitRange, error) {
	if known, ok := l.recent.Get(namespace); ok {
		items, _ := known.([]*corev1.LimitRange)
		return items, nil
	}
	answer := l.group.DoChan(namespace, func() (any, error) {
		ctx, cancel := context.WithTimeout(reads.Without(context.WithoutCancel(ctx)), listTimeout)
		defer cancel()
		return l.list(ctx, namespace)
	})
	select {
	case a := <-answer:
		items, _ := a.Val.([]*corev1.LimitRange)
		return items, a.Err
	case <-ctx.Done():
		return nil, fmt.Errorf("listing the limit ranges of namespace %s: %w", namespace, ctx.Err())
	}
}

func (l *ranges) list(ctx context.Context, namespace string) ([]*corev1.LimitRange, error) {
	list, err := l.client.LimitRanges(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing the limit ranges of namespace %s: %w", namespace, err)
	}
	items := make([]*corev1.LimitRange, 0, len(list.Items))
	for i := range list.Items {
		items = append(items, &list.Items[i])
	}
	sortByName(items)
	l.recent.Add(namespace, items, recentTTL)
	return items, nil
}

func sortByName(items []*corev1.LimitRange) {
	slices.SortFunc(items, func(a, b *corev1.LimitRange) int { return cmp.Compare(a.Name, b.Name) })
}
