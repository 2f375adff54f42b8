package initialresources

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/postern-dev/postern/pkg/admissions/pods/initialresources/internal/usage"
)

const (
	// maxPending is the largest number of scopes with a running or waiting query. maxPendingHere is the largest number
	// caused by pods of one namespace, so that other namespaces get estimates too. Users choose the images of pods.
	maxPending     = 256
	maxPendingHere = 64
	// askTimeout is the time-out of the queries for one scope, including the time that they wait for other queries.
	askTimeout = time.Minute
	// retryInterval is the pause after an error.
	retryInterval = 30 * time.Second
	// maxAge is the age at which an answer expires.
	maxAge = 24 * time.Hour
)

// background is an estimator for a source that may be slow or unavailable. Queries run in the background and their
// answers are cached. An old answer is used while it is refreshed. A call waits only for an answer that is not in the
// cache.
type background struct {
	source        usage.Source
	namespaceOnly bool
	clock         clock.PassiveClock
	// refresh is the age at which an answer is refreshed on its next use.
	refresh time.Duration
	// slots has one token for each concurrent query.
	slots   chan struct{}
	lookups *metrics.CounterVec

	mu      sync.Mutex
	entries *lru.Cache
	// pending is the number of scopes with a running or waiting query, by namespace of the pod. all is their sum.
	pending map[string]int
	all     int
	// failures bounds the log lines about errors.
	failures rate.Sometimes
}

// entry is the answer for a scope. background.mu guards it.
type entry struct {
	// known is closed when there is an answer or an error for the first time.
	known chan struct{}
	// asking is true while a query for the scope runs or waits.
	asking bool
	// answer was returned at the time answered. It is the zero Answer if there is none.
	answer   usage.Answer
	answered time.Time
	// next is the earliest time of the next query.
	next time.Time
}

func (b *background) start(source usage.Source, size, concurrent int, registry metrics.KubeRegistry) (*background, error) {
	b.slots, b.entries, b.pending = make(chan struct{}, concurrent), lru.New(size), map[string]int{}
	queries := metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace: "postern", Subsystem: "initial_resources", Name: "query_duration_seconds",
		Help:           "Time of the queries of InitialResources for one percentile, in seconds, by result: answered, empty or failed.",
		Buckets:        []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5, 5, 10, 30},
		StabilityLevel: metrics.ALPHA,
	}, []string{"result"})
	b.lookups = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "postern", Subsystem: "initial_resources", Name: "lookups_total",
		Help:           "Lookups of InitialResources in its cache, by result: hit, stale, miss, pending, failed, or dropped if too many queries are pending.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"result"})
	b.source = observed{source, queries}
	if registry == nil {
		return b, nil
	}
	return b, errors.Join(registry.Register(queries), registry.Register(b.lookups))
}

// estimate implements estimator. It starts all queries before it waits for the first.
func (b *background) estimate(ctx context.Context, namespace string, _ *corev1.Pod, wants []want) []int64 {
	scopes, first := scopesOf(namespace, b.namespaceOnly, wants), make([]*entry, len(wants))
	for i := range scopes {
		if len(scopes[i]) > 0 {
			first[i] = b.lookup(ctx, namespace, scopes[i][0])
		}
	}
	amounts := make([]int64, len(wants))
	for i := range scopes {
		amounts[i] = widen(scopes[i], func(s usage.Scope) (usage.Answer, bool) {
			if s == scopes[i][0] {
				return b.await(ctx, first[i])
			}
			return b.await(ctx, b.lookup(ctx, namespace, s))
		})
	}
	return amounts
}

// lookup returns the entry of a scope, and starts a query if the entry is missing or old. It returns nil if too many
// queries are pending.
func (b *background) lookup(ctx context.Context, namespace string, s usage.Scope) *entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	e := b.cached(s)
	usable, early := e.usable(now), now.Before(e.next)
	result := "miss"
	switch {
	case early && usable:
		result = "hit"
	case early:
		result = "failed"
	case usable:
		result = "stale"
	case e.asking:
		result = "pending"
	}
	if !early && !e.asking {
		if full := b.all >= maxPending || b.pending[namespace] >= maxPendingHere; full && !usable {
			b.lookups.WithLabelValues("dropped").Inc()
			return nil
		} else if !full {
			if !usable {
				e = &entry{known: make(chan struct{})}
				b.entries.Add(s, e)
			}
			e.asking = true
			b.all++
			b.pending[namespace]++
			go b.ask(context.WithoutCancel(ctx), namespace, s, e)
		}
	}
	b.lookups.WithLabelValues(result).Inc()
	return e
}

// cached returns the entry of a scope, or an empty one.
func (b *background) cached(s usage.Scope) *entry {
	if value, ok := b.entries.Get(s); ok {
		if e, ok := value.(*entry); ok {
			return e
		}
	}
	return &entry{}
}

func (e *entry) usable(now time.Time) bool {
	return !e.answered.IsZero() && now.Sub(e.answered) < maxAge
}

// ask queries the source for a scope, and for the wider scope if there are too few samples. Its answers serve later
// pods if the pod that caused the query does not wait.
func (b *background) ask(ctx context.Context, namespace string, s usage.Scope, e *entry) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answer, err := b.inSlot(ctx, s)
	b.mu.Lock()
	b.settle(ctx, e, answer, err)
	b.all--
	if b.pending[namespace]--; b.pending[namespace] == 0 {
		delete(b.pending, namespace)
	}
	b.mu.Unlock()
	if err == nil && answer.Samples < usage.Enough && !s.Last {
		b.lookup(ctx, namespace, s.Wider())
	}
}

// inSlot queries the source once fewer than the allowed number of queries run.
func (b *background) inSlot(ctx context.Context, s usage.Scope) (usage.Answer, error) {
	select {
	case b.slots <- struct{}{}:
		defer func() { <-b.slots }()
		return usage.Estimate(ctx, b.source, s)
	case <-ctx.Done():
		return usage.Answer{}, fmt.Errorf("waiting for other queries: %w", ctx.Err())
	}
}

// settle stores an answer. After an error it keeps the older answer.
func (b *background) settle(ctx context.Context, e *entry, answer usage.Answer, err error) {
	now := b.clock.Now()
	e.asking = false
	if err == nil {
		e.answer, e.answered, e.next = answer, now, now.Add(b.refresh)
	} else {
		e.next = now.Add(retryInterval)
		b.failures.Do(func() {
			klog.FromContext(ctx).Error(err, "Could not read the usage of an image; pods with it are created without an estimate")
		})
	}
	select {
	case <-e.known:
	default:
		close(e.known)
	}
}

// await waits for the first answer of an entry. It returns false if the query fails, or if ctx ends first.
func (b *background) await(ctx context.Context, e *entry) (usage.Answer, bool) {
	if e == nil {
		return usage.Answer{}, false
	}
	select {
	case <-e.known:
	default:
		select {
		case <-e.known:
		case <-ctx.Done():
			return usage.Answer{}, false
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return e.answer, e.usable(b.clock.Now())
}
