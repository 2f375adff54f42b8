package imagepolicywebhook

import (
	"context"
	"crypto/sha256"
	"encoding/json"
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
	// maxReserve is the part of a long time-out that is left for the rest of a request: the deadline of the router, the
	// plugins before and after this one, and the answer. Of a shorter time-out it is three tenths.
	maxReserve = 1500 * time.Millisecond
)

// errBusy is our own limit, not a failure of the backend. defaultAllow must not apply, because the sender of many
// requests can reach the limit.
var errBusy = fmt.Errorf("%d requests wait for the image policy backend already", maxWaiting)

// verdicts are the verdicts of the backend: those in the cache, and those that requests wait for.
type verdicts struct {
	backend           *backend
	allowTTL, denyTTL time.Duration
	// reviewTime is the time of each review with all its retries, whatever time its request has. A backend that does not
	// answer in less time has not failed.
	reviewTime time.Duration
	cached     *cache.LRUExpireCache
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
}

// newVerdicts returns an empty cache. registered is the time-out of the webhooks.
func newVerdicts(b *backend, s settings, c clock.PassiveClock, registered time.Duration) *verdicts {
	return &verdicts{
		backend: b, allowTTL: s.allowTTL, denyTTL: s.denyTTL, cached: cache.NewLRUExpireCacheWithClock(cacheSize, c),
		reviewTime: registered - min(registered*3/10, maxReserve),
		waiting:    make(chan struct{}, maxWaiting), asked: map[key]*question{},
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
	wait, short := v.timeOf(ctx)
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	status, err := v.await(ctx, k, spec)
	if err != nil && short {
		err = &shortError{err}
	}
	return status, err
}

// shortError is the error of a request that had less time than a review, so that the backend has not failed.
type shortError struct{ error }

func (e *shortError) Unwrap() error { return e.error }

// timeOf returns how long a request waits for its verdict, and whether this is less than the time of a review. A reserve
// remains for the decision without a verdict, and for later plugins.
func (v *verdicts) timeOf(ctx context.Context) (wait time.Duration, short bool) {
	deadline, ok := ctx.Deadline()
	left := time.Until(deadline)
	if !ok || left >= v.reviewTime {
		return v.reviewTime, false
	}
	return left - min(left/5, time.Second), true
}

// await joins the review with this key, or begins it.
func (v *verdicts) await(ctx context.Context, k key, spec imagepolicyv1alpha1.ImageReviewSpec) (*imagepolicyv1alpha1.ImageReviewStatus, error) {
	q := v.join(ctx, k, spec)
	defer v.leave(k, q)
	select {
	case <-q.done:
		return q.status, q.err
	case <-ctx.Done():
		return nil, fmt.Errorf("the image policy backend did not answer: %w", ctx.Err())
	}
}

func (v *verdicts) join(ctx context.Context, k key, spec imagepolicyv1alpha1.ImageReviewSpec) *question {
	v.mu.Lock()
	defer v.mu.Unlock()
	q := v.asked[k]
	if q == nil {
		q = &question{done: make(chan struct{})}
		// The review continues for the other requests if this request ends.
		var reviewing context.Context
		reviewing, q.cancel = context.WithTimeout(context.WithoutCancel(ctx), v.reviewTime)
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
