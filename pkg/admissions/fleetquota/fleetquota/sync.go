package fleetquota

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/postern-dev/postern/internal/fleetquota/census"
	"github.com/postern-dev/postern/internal/fleetquota/ledger"
	"github.com/postern-dev/postern/internal/fleetquota/store"
	"github.com/postern-dev/postern/pkg/admit"
	quotav1alpha1 "github.com/postern-dev/postern/pkg/apis/quota/v1alpha1"
)

const (
	// recountInterval is the time between two counts of the caches.
	recountInterval = time.Second
	// lookupInterval is the time between two rounds of lookups of old requests, and lookupTimeout is how long a round may take.
	lookupInterval = time.Second
	lookupTimeout  = 10 * time.Second
	// maxLookups is how many old requests of a quota are looked up in a round, lookupsAtATime of them at a time.
	maxLookups     = 200
	lookupsAtATime = 4
)

// ledgers are the accounts of all quotas of the cluster.
type ledgers struct {
	config     config
	hub        *store.Quotas
	allowances *store.Allowances
	census     *census.Census
	cached     cache.SharedIndexInformer
	spaces     corev1listers.NamespaceLister
	clock      clock.Clock
	metrics    *decisions
	waiting    waiting

	mu    sync.Mutex
	books map[string]*book
}

func newLedgers(d admit.Deps, c config, hub *store.Quotas, found *census.Census) (*ledgers, error) {
	informer := d.CustomInformers.ForResource(quotav1alpha1.Allowances()).Informer()
	err := informer.SetTransform(func(obj any) (any, error) {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return obj, nil
		}
		a := &allowance{ObjectMeta: metav1.ObjectMeta{Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion()}}
		a.content, a.err = store.Decode(u)
		return a, nil
	})
	if err != nil {
		return nil, fmt.Errorf("watching allowances: %w", err)
	}
	l := &ledgers{
		config: c, hub: hub, allowances: store.NewAllowances(d.Dynamic), census: found, cached: informer, clock: d.Clock, books: map[string]*book{},
		waiting: newWaiting(), spaces: d.Informers.Core().V1().Namespaces().Lister(),
	}
	l.metrics, err = newDecisions(d.Metrics, l)
	return l, err
}

// book returns the book of a quota.
func (l *ledgers) book(quota string) *book {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, ok := l.books[quota]
	if !ok {
		b = &book{metrics: l.metrics, waiting: l.waiting, account: ledger.NewAccount(quota, l.allowances, l.hub, l.census, ledger.Options{
			Cluster: l.config.Cluster.Name, ID: l.id, Step: float64(l.config.ClaimStep) / 100, Heartbeat: l.config.ReportInterval.Duration,
			PendingTimeout: l.config.RequestTimeout.Duration, Now: l.clock.Now, Pause: rest,
			Observe: func(what string, err error) { l.metrics.wrote(quota, what, err) },
		})}
		l.books[quota] = b
	}
	return b
}

// id returns what distinguishes this cluster from another one with the same name, or "".
func (l *ledgers) id() types.UID {
	ns, err := l.spaces.Get(metav1.NamespaceSystem)
	if err != nil {
		return ""
	}
	return ns.UID
}

// all returns the books of all quotas.
func (l *ledgers) all() []*book {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]*book, 0, len(l.books))
	for _, b := range l.books {
		out = append(out, b)
	}
	return out
}

// rest waits for a random time, so that writers in conflict do not meet again.
func rest(ctx context.Context, most time.Duration) error {
	select {
	case <-time.After(wait.Jitter(most/4, 3)):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("charging a fleet quota that others charge too: %w", ctx.Err())
	}
}

// recount counts the workloads in the caches again and again.
func (l *ledgers) recount(ctx context.Context) {
	wait.JitterUntilWithContext(ctx, l.recountOnce, recountInterval/2, 2, true)
}

func (l *ledgers) recountOnce(ctx context.Context) {
	if !l.census.Synced() {
		return
	}
	if _, err := l.list(); err != nil {
		return
	}
	for _, b := range l.all() {
		if err := b.account.Recount(ctx); err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Could not count workloads", "quota", b.account.Name())
		}
	}
}

// lookUp finds out again and again which old requests have stored nothing.
func (l *ledgers) lookUp(ctx context.Context) {
	wait.JitterUntilWithContext(ctx, l.lookUpOnce, lookupInterval/2, 2, true)
}

func (l *ledgers) lookUpOnce(ctx context.Context) {
	round, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	var quotas sync.WaitGroup
	for _, b := range l.all() {
		quotas.Go(func() {
			overdue := b.account.Overdue(maxLookups)
			errs := make([]error, len(overdue))
			workqueue.ParallelizeUntil(round, lookupsAtATime, len(overdue), func(i int) {
				errs[i] = b.account.LookUp(round, &overdue[i])
			})
			// All of them often fail for one reason.
			if err := cmp.Or(errs...); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Could not look up an old request, which stays charged", "quota", b.account.Name())
			}
		})
	}
	quotas.Wait()
}

// syncHub keeps the accounts and the quotas of the hub together. It begins as soon as the accounts are known: until then
// nothing is limited in a cluster that never had an account.
func (l *ledgers) syncHub(ctx context.Context) {
	if !cache.WaitForCacheSync(ctx.Done(), l.cached.HasSynced, l.census.Synced) {
		return
	}
	next := l.config.SyncInterval.Duration
	delay := wait.DelayFunc(func() time.Duration { return wait.Jitter(next/2, 2) })
	// The error is that of ctx.
	_ = delay.Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		next = l.syncOnce(ctx)
		return false, nil
	})
}

// syncOnce returns the mean time until the next call.
func (l *ledgers) syncOnce(ctx context.Context) time.Duration {
	log := klog.FromContext(ctx)
	next := l.config.SyncInterval.Duration
	quotas, err := l.hub.List(ctx)
	if err != nil {
		if ctx.Err() == nil {
			log.Error(err, "The hub of the fleet quotas does not answer")
		}
		return next
	}
	covered := map[string]bool{}
	for _, q := range quotas {
		next = ledger.Spread(q, next)
		if !l.covers(q) {
			if ledger.Has(q, l.config.Cluster.Name, l.id()) {
				l.tryDrop(ctx, q.Name)
			}
			continue
		}
		covered[q.Name] = true
		if err := l.syncQuota(ctx, q); err != nil && ctx.Err() == nil {
			log.Error(err, "Could not bring a fleet quota up to date", "quota", q.Name)
		}
	}
	for _, obj := range l.cached.GetStore().List() {
		a, err := allowanceOf(obj)
		if err != nil || covered[a.Name] {
			continue
		}
		l.tryDrop(ctx, a.Name)
	}
	return next
}

func (l *ledgers) tryDrop(ctx context.Context, quota string) {
	if err := l.drop(ctx, quota); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Could not drop a fleet quota that does not cover this cluster any more", "quota", quota)
	}
}

// covers reports whether a quota covers this cluster.
func (l *ledgers) covers(q *quotav1alpha1.FleetQuota) bool {
	if q.Spec.Clusters == nil {
		return true
	}
	s, err := metav1.LabelSelectorAsSelector(q.Spec.Clusters)
	return err != nil || s.Matches(labels.Set(l.config.Cluster.Labels))
}

func (l *ledgers) syncQuota(ctx context.Context, q *quotav1alpha1.FleetQuota) error {
	spec := quotav1alpha1.FleetAllowanceSpec{Hard: q.Spec.Hard, Namespaces: q.Spec.Namespaces}
	spec.Others, spec.OthersUsed = ledger.Others(q, l.config.Cluster.Name)
	b := l.book(q.Name)
	err := b.account.Describe(ctx, spec)
	if apierrors.IsNotFound(err) {
		_, err = l.allowances.Create(ctx, &quotav1alpha1.FleetAllowance{ObjectMeta: metav1.ObjectMeta{Name: q.Name}, Spec: spec})
		if apierrors.IsAlreadyExists(err) {
			err = nil
		}
	}
	if err != nil {
		return err
	}
	return b.account.Maintain(ctx)
}

// drop removes the account of a quota that is gone, or that does not cover this cluster any more.
func (l *ledgers) drop(ctx context.Context, quota string) error {
	if err := l.allowances.Delete(ctx, quota); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	l.mu.Lock()
	delete(l.books, quota)
	l.mu.Unlock()
	return ledger.Withdraw(ctx, l.hub, quota, l.config.Cluster.Name, l.id())
}

// amounts calls f for each amount of each account.
func (l *ledgers) amounts(f func(quota string, resource corev1.ResourceName, kind string, value float64)) {
	for _, b := range l.all() {
		known := b.account.Known()
		if known == nil {
			continue
		}
		charged := ledger.Charged(known)
		for name := range known.Spec.Hard {
			for kind, list := range map[string]corev1.ResourceList{"limit": known.Spec.Hard, "allowance": known.Status.Allowance, "charged": charged} {
				q := list[name]
				f(known.Name, name, kind, q.AsApproximateFloat64())
			}
		}
	}
}
