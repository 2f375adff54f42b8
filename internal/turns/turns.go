// Package turns serves requests that read and write the same object. One goroutine for each object serves all requests
// that wait for it, in batches, so a burst of requests costs few writes. No request depends on the deadline, the client
// or the goroutine of another one.
package turns

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/internal/reads"
)

const (
	// maxWait bounds the time of a request that has no deadline.
	maxWait = 10 * time.Second
	// margin is the time in which the result of a request reaches its client.
	margin = 100 * time.Millisecond
)

var errUnserved = fmt.Errorf("the request was not served in time: %w", context.DeadlineExceeded)

// Serve serves a batch of requests for one object, in the order in which they came. It calls Finish or Retry for each
// request; a request without either is served again. ctx ends with the last deadline of the batch, and is not used after that or
// after Serve has returned.
type Serve[K comparable, T any] func(ctx context.Context, object K, batch []*Turn[T])

// Queues holds the requests that wait, by object.
type Queues[K comparable, T any] struct {
	serve   Serve[K, T]
	backoff wait.Backoff
	panics  rate.Sometimes

	mu sync.Mutex
	// waiting has an entry for each object that a goroutine serves. The goroutine removes the entry and ends when no
	// request waits.
	waiting map[K][]*Turn[T]
}

// New returns queues without requests. Between two batches with the same request there is a pause of the backoff.
func New[K comparable, T any](backoff wait.Backoff, serve Serve[K, T]) *Queues[K, T] {
	return &Queues[K, T]{serve: serve, backoff: backoff, panics: rate.Sometimes{Interval: time.Second}, waiting: map[K][]*Turn[T]{}}
}

// Turn is one request.
type Turn[T any] struct {
	Item T

	// queued notes that the request waits for others.
	queued   func()
	ended    <-chan struct{}
	deadline time.Time
	done     chan struct{}
	finished bool
	// err is the result, or what the result will be if there is no time for another attempt.
	err error
}

// Finish ends the request with a result. Only Serve may call Finish.
func (t *Turn[T]) Finish(err error) {
	if t.finished {
		return
	}
	t.err, t.finished = err, true
	close(t.done)
}

// Retry has the request served again with the next batch. If there is no time for that, err is the result. Only Serve may
// call Retry.
func (t *Turn[T]) Retry(err error) { t.err = err }

// Ended reports whether the context of the request has ended. Then Do returns the error of the context, whatever the result.
func (t *Turn[T]) Ended() bool {
	select {
	case <-t.ended:
		return true
	default:
		return false
	}
}

// Do waits until the item is served and returns the result, or the error of ctx when ctx ends. An item that is being
// served when ctx ends may be served all the same.
func (q *Queues[K, T]) Do(ctx context.Context, object K, item T) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	deadline, _ := ctx.Deadline()
	t := &Turn[T]{Item: item, queued: func() { reads.Queued(ctx) }, ended: ctx.Done(), deadline: deadline, done: make(chan struct{}), err: errUnserved}
	q.join(ctx, object, t)
	select {
	case <-t.done:
	case <-ctx.Done():
		q.leave(object, t)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return t.err
}

func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, maxWait)
}

func (q *Queues[K, T]) join(ctx context.Context, object K, t *Turn[T]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, served := q.waiting[object]
	q.waiting[object] = append(q.waiting[object], t)
	if served {
		t.queued()
		return
	}
	go q.run(reads.Without(context.WithoutCancel(ctx)), object)
}

// leave removes a request that nobody waits for, so that its item takes no memory.
func (q *Queues[K, T]) leave(object K, t *Turn[T]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if waiting := q.waiting[object]; len(waiting) > 0 {
		q.waiting[object] = slices.DeleteFunc(waiting, func(other *Turn[T]) bool { return other == t })
	}
}

// run serves an object until no request waits for it.
func (q *Queues[K, T]) run(ctx context.Context, object K) {
	backoff := q.backoff
	for {
		batch := q.take(object)
		if len(batch) == 0 {
			return
		}
		start := time.Now()
		q.attempt(ctx, object, batch)
		batch = slices.DeleteFunc(batch, func(t *Turn[T]) bool { return t.finished })
		if len(batch) == 0 {
			backoff = q.backoff
			continue
		}
		pause := backoff.Step()
		if q.putBack(object, batch, time.Since(start)+pause+margin) {
			time.Sleep(pause)
		}
	}
}

// take returns the requests that wait for an object. If there are none, the object is no longer served.
func (q *Queues[K, T]) take(object K) []*Turn[T] {
	q.mu.Lock()
	defer q.mu.Unlock()
	batch := slices.DeleteFunc(q.waiting[object], (*Turn[T]).Ended)
	if len(batch) == 0 {
		delete(q.waiting, object)
		return nil
	}
	q.waiting[object] = nil
	return batch
}

// attempt serves a batch once. A panic is the result of all requests that are not finished, because what they have
// changed is not known.
func (q *Queues[K, T]) attempt(ctx context.Context, object K, batch []*Turn[T]) {
	queued := func() {
		for _, t := range batch {
			t.queued()
		}
	}
	if len(batch) > 1 {
		// Each waits for what the others need.
		queued()
	}
	last := slices.MaxFunc(batch, func(a, b *Turn[T]) int { return a.deadline.Compare(b.deadline) })
	ctx, cancel := context.WithDeadline(ctx, last.deadline)
	defer cancel()
	defer func() {
		// The router does not see a panic of this goroutine.
		if p := recover(); p != nil {
			q.panics.Do(func() {
				klog.FromContext(ctx).Error(nil, "Serving a batch of requests panicked", "panic", p, "stack", string(debug.Stack()))
			})
			for _, t := range batch {
				t.Finish(fmt.Errorf("serving a batch of requests panicked: %v", p))
			}
		}
	}()
	q.serve(reads.WithQueued(ctx, queued), object, batch)
}

// putBack puts requests in front of those that came later, and reports whether any request waits. It finishes requests
// that end before another attempt, which takes as much time as is needed.
func (q *Queues[K, T]) putBack(object K, batch []*Turn[T], needed time.Duration) bool {
	end := time.Now().Add(needed)
	batch = slices.DeleteFunc(batch, func(t *Turn[T]) bool {
		late := t.deadline.Before(end)
		if late {
			t.Finish(t.err)
		}
		return late
	})
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting[object] = append(batch, q.waiting[object]...)
	return len(q.waiting[object]) > 0
}
