package imagepolicywebhook

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
)

const (
	// cacheSize is the number of cached verdicts, as in kube-apiserver.
	cacheSize = 1024
	// maxCached is the size of the largest cached verdict, in bytes. The creator of a pod may influence the size: a
	// backend may repeat the images of the pod.
	maxCached = 16 << 10
	// maxWaiting bounds the requests that wait for the backend, so that a backend that does not answer leaves most of
	// the default of --max-requests-inflight to other requests.
	maxWaiting = 200
)

// errBusy is our own limit, not a failure of the backend. defaultAllow must not apply, because the sender of many
// requests can reach the limit.
var errBusy = fmt.Errorf("%d requests wait for the image policy backend already", maxWaiting)

// verdicts are the verdicts of the backend: those in the cache, and those that requests wait for.
type verdicts struct {
	backend           *backend
	allowTTL, denyTTL time.Duration
	cached            *cache.LRUExpireCache
	// waiting has an item for each request that waits for the backend.
	waiting chan struct{}

	mu sync.Mutex
	// asked holds the reviews in progress. Requests with the same key share a review.
	asked map[key]*question
}

// key identifies the content of a review. It is a digest, because the creator of a pod controls the size of the
// content.
type key [sha256.Size]byte

// question is a review in progress.
type question struct {
	// done is closed when status and err are set.
	done   chan struct{}
	status *imagepolicyv1alpha1.ImageReviewStatus
	err    error
	// cancel ends the review. It is called when no request waits any more.
	cancel  context.CancelFunc
	waiting int
	// deadline is that of the request that began the review.
	deadline time.Time
}

func newVerdicts(b *backend, s settings, c clock.PassiveClock) *verdicts {
	return &verdicts{
		backend: b, allowTTL: s.allowTTL, denyTTL: s.denyTTL, cached: cache.NewLRUExpireCacheWithClock(cacheSize, c),
		waiting: make(chan struct{}, maxWaiting), asked: map[key]*question{},
	}
}

// of returns the verdict about a review. The result is shared and read-only.
func (v *verdicts) of(ctx context.Context, spec imagepolicyv1alpha1.ImageReviewSpec) (*imagepolicyv1alpha1.ImageReviewStatus, error) {
	content, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("encoding the review: %w", err)
	}
	k := key(sha256.Sum256(content))
	if entry, ok := v.cached.Get(k); ok {
		if status, ok := entry.(*imagepolicyv1alpha1.ImageReviewStatus); ok {
			return status, nil
		}
	}
	select {
	case v.waiting <- struct{}{}:
		defer func() { <-v.waiting }()
	default:
		return nil, errBusy
	}
	ctx, cancel := withReserve(ctx)
	defer cancel()
	for {
		status, again, err := v.await(ctx, k, spec)
		if again && ctx.Err() == nil {
			continue
		}
		return status, err
	}
}

// withReserve returns a context that ends before the deadline of the request. So defaultAllow decides about a backend
// that does not answer, and later plugins have time.
func withReserve(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithTimeout(ctx, requestTimeout)
	}
	return context.WithDeadline(ctx, deadline.Add(-min(time.Until(deadline)/5, time.Second)))
}

// await joins the review with this key, or begins it. It returns true if the review had less time than this request has.
func (v *verdicts) await(ctx context.Context, k key, spec imagepolicyv1alpha1.ImageReviewSpec) (status *imagepolicyv1alpha1.ImageReviewStatus, again bool, err error) {
	q := v.join(ctx, k, spec)
	defer v.leave(k, q)
	select {
	case <-q.done:
		_, noTime := errors.AsType[*noTimeError](q.err)
		deadline, _ := ctx.Deadline()
		return q.status, (noTime || errors.Is(q.err, context.DeadlineExceeded)) && deadline.After(q.deadline), q.err
	case <-ctx.Done():
		return nil, false, fmt.Errorf("the image policy backend did not answer: %w", ctx.Err())
	}
}

func (v *verdicts) join(ctx context.Context, k key, spec imagepolicyv1alpha1.ImageReviewSpec) *question {
	v.mu.Lock()
	defer v.mu.Unlock()
	q := v.asked[k]
	if q == nil {
		deadline, _ := ctx.Deadline()
		q = &question{done: make(chan struct{}), deadline: deadline}
		// The review continues for the other requests if this request is canceled.
		var reviewing context.Context
		reviewing, q.cancel = context.WithDeadline(context.WithoutCancel(ctx), deadline)
		v.asked[k] = q
		go v.ask(reviewing, k, q, spec)
	}
	q.waiting++
	return q
}

// leave ends the review if no request waits for it any more.
func (v *verdicts) leave(k key, q *question) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if q.waiting--; q.waiting == 0 {
		q.cancel()
		v.forget(k, q)
	}
}

// forget removes the review. The caller holds the lock.
func (v *verdicts) forget(k key, q *question) {
	if v.asked[k] == q {
		delete(v.asked, k)
	}
}

func (v *verdicts) ask(ctx context.Context, k key, q *question, spec imagepolicyv1alpha1.ImageReviewSpec) {
	defer func() {
		// The router does not see a panic of this goroutine.
		if p := recover(); p != nil {
			q.status, q.err = nil, fmt.Errorf("asking the image policy backend panicked: %v", p)
		}
		v.mu.Lock()
		v.forget(k, q)
		v.mu.Unlock()
		close(q.done)
	}()
	q.status, q.err = v.backend.review(ctx, spec)
	if q.err == nil {
		v.keep(k, q.status)
	}
}

// keep adds a verdict to the cache.
func (v *verdicts) keep(k key, status *imagepolicyv1alpha1.ImageReviewStatus) {
	ttl := v.denyTTL
	if status.Allowed {
		ttl = v.allowTTL
	}
	size := len(status.Reason)
	for key, value := range status.AuditAnnotations {
		size += len(key) + len(value)
	}
	if ttl > 0 && size <= maxCached {
		v.cached.Add(k, status, ttl)
	}
}
