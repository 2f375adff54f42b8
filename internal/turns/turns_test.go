package turns_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/postern-dev/postern/internal/reads"
	"github.com/postern-dev/postern/internal/turns"
)

// The tests run with a fake clock. Each bubble fails if a goroutine remains at its end.

const long = 10 * time.Second

var errConflict = errors.New("conflict")

type (
	queues = turns.Queues[string, string]
	turn   = turns.Turn[string]
)

func backoff() wait.Backoff {
	return wait.Backoff{Duration: 5 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: 40 * time.Millisecond}
}

type answer struct {
	err  error
	took time.Duration
}

// send sends a request and returns when it waits or has ended.
func send(t *testing.T, q *queues, timeout time.Duration, object, item string) <-chan answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	out := make(chan answer, 1)
	go func() {
		defer cancel()
		start := time.Now()
		err := q.Do(ctx, object, item)
		out <- answer{err, time.Since(start)}
	}()
	synctest.Wait()
	return out
}

func items(batch []*turn) string {
	var out []string
	for _, t := range batch {
		out = append(out, t.Item)
	}
	return strings.Join(out, " ")
}

func finishAll(batch []*turn, err error) {
	for _, t := range batch {
		t.Finish(err)
	}
}

// blocked returns queues whose first attempt ends when the channel is closed. It records all batches.
func blocked(serve func(ctx context.Context, batch []*turn)) (q *queues, proceed chan struct{}, batches *[]string) {
	proceed, batches = make(chan struct{}), new([]string)
	return turns.New(backoff(), func(ctx context.Context, _ string, batch []*turn) {
		*batches = append(*batches, items(batch))
		<-proceed
		serve(ctx, batch)
	}), proceed, batches
}

// TestBatch has requests wait while another one is served. They are served together, in the order in which they came.
func TestBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, proceed, batches := blocked(func(_ context.Context, batch []*turn) {
			for _, t := range batch {
				if t.Item == "odd" {
					t.Finish(errConflict)
				}
				t.Finish(nil)
			}
		})
		var all []<-chan answer
		for _, item := range []string{"a", "b", "odd", "c"} {
			all = append(all, send(t, q, long, "shop", item))
		}
		close(proceed)
		for i, want := range []error{nil, nil, errConflict, nil} {
			if got := <-all[i]; !errors.Is(got.err, want) || got.took != 0 {
				t.Errorf("Got %v after %v for request %d, want %v at once", got.err, got.took, i, want)
			}
		}
		if want := []string{"a", "b odd c"}; !slices.Equal(*batches, want) {
			t.Errorf("Got the batches %q, want %q", *batches, want)
		}
	})
}

// TestObjectsAreIndependent has the requests for one object hang. Those for another one are served.
func TestObjectsAreIndependent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := turns.New(backoff(), func(ctx context.Context, object string, batch []*turn) {
			if object == "hung" {
				<-ctx.Done()
			}
			finishAll(batch, ctx.Err())
		})
		hung := send(t, q, long, "hung", "a")
		for range 3 {
			if got := <-send(t, q, long, "shop", "b"); got.err != nil || got.took != 0 {
				t.Errorf("Got %v after %v, want none at once", got.err, got.took)
			}
		}
		if got := <-hung; !errors.Is(got.err, context.DeadlineExceeded) {
			t.Errorf("Got %v, want the deadline", got.err)
		}
	})
}

// TestOwnDeadline has the request that came first have less time than the others of its batch. The attempt goes on until
// the last deadline, and each request ends at its own.
func TestOwnDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended time.Duration
		start := time.Now()
		q, proceed, _ := blocked(func(ctx context.Context, batch []*turn) {
			if items(batch) == "first" {
				finishAll(batch, nil)
				return
			}
			<-ctx.Done()
			ended = time.Since(start)
		})
		first := send(t, q, long, "shop", "first")
		others := map[time.Duration]<-chan answer{}
		for _, timeout := range []time.Duration{time.Second, 3 * time.Second, long} {
			others[timeout] = send(t, q, timeout, "shop", timeout.String())
		}
		close(proceed)
		if got := <-first; got.err != nil {
			t.Errorf("Got %v, want none", got.err)
		}
		for timeout, other := range others {
			if got := <-other; !errors.Is(got.err, context.DeadlineExceeded) || got.took != timeout {
				t.Errorf("With %v left: got %v after %v, want the own deadline", timeout, got.err, got.took)
			}
		}
		synctest.Wait()
		if ended != long {
			t.Errorf("The attempt ended after %v, want the last deadline", ended)
		}
	})
}

// TestRetry has an attempt fail for two of three requests until a moment. They are served together with a request that
// came later, and no request is lost.
func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calm atomic.Bool
		var last string
		q := turns.New(backoff(), func(_ context.Context, _ string, batch []*turn) {
			last = items(batch)
			for _, t := range batch {
				if calm.Load() || t.Item == "lucky" {
					t.Finish(nil)
				} else {
					t.Retry(errConflict)
				}
			}
		})
		var all []<-chan answer
		for _, item := range []string{"a", "lucky", "b", "c"} {
			all = append(all, send(t, q, long, "shop", item))
			time.Sleep(time.Second)
		}
		calm.Store(true)
		for i, one := range all {
			if got := <-one; got.err != nil || i == 1 && got.took > time.Second {
				t.Errorf("Got %v after %v for request %d, want none", got.err, got.took, i)
			}
		}
		if last != "a b c" {
			t.Errorf("The last batch was %q, want the order in which the requests came", last)
		}
	})
}

// TestConflictThatDoesNotEnd has each request be tried again until there is no time for another attempt. The result is the
// reason of the last attempt, a moment before the deadline.
func TestConflictThatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, cost := range []time.Duration{0, 200 * time.Millisecond} {
			attempts := 0
			q := turns.New(backoff(), func(_ context.Context, _ string, batch []*turn) {
				attempts++
				time.Sleep(cost)
				for _, t := range batch {
					t.Retry(errConflict)
				}
			})
			all := map[time.Duration]<-chan answer{}
			for _, timeout := range []time.Duration{time.Second, 3 * time.Second, long} {
				all[timeout] = send(t, q, timeout, "shop", timeout.String())
			}
			for timeout, one := range all {
				if got := <-one; !errors.Is(got.err, errConflict) || got.took >= timeout || got.took < timeout/3 {
					t.Errorf("With %v left, and attempts of %v: got %v after %v, want a conflict shortly before that", timeout, cost, got.err, got.took)
				}
			}
			if most := int(long / (40 * time.Millisecond)); attempts > most+10 {
				t.Errorf("Got %d attempts in %v, want pauses between them", attempts, long)
			}
		}
	})
}

// TestUnserved has a request be ignored. It ends with an error, never with success.
func TestUnserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := turns.New(wait.Backoff{Duration: time.Millisecond}, func(context.Context, string, []*turn) {})
		if got := <-send(t, q, time.Second, "shop", "a"); got.err == nil {
			t.Error("Got no error for a request that was never served")
		}
	})
}

// noting returns a context that notes whether its request waits for others.
func noting(t *testing.T, waits *bool) context.Context {
	t.Helper()
	return reads.WithQueued(reads.NewContext(t.Context(), reads.Detached(nil)), func() { *waits = true })
}

// TestWhoWaits has a request that is served alone, while another one waits. Then it is served again, together with that one.
func TestWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		q, proceed, batches := blocked(func(_ context.Context, batch []*turn) {
			if attempts++; attempts == 1 {
				return // The first one is served again, together with the other.
			}
			finishAll(batch, nil)
		})
		waits := make([]bool, 2)
		var all sync.WaitGroup
		for i := range waits {
			all.Go(func() {
				if err := q.Do(noting(t, &waits[i]), "shop", strconv.Itoa(i)); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		if waits[0] || !waits[1] {
			t.Errorf("Got %v before the end of the first attempt, want that the second one waits", waits)
		}
		close(proceed)
		all.Wait()
		if want := []string{"0", "0 1"}; !slices.Equal(*batches, want) || !waits[0] {
			t.Errorf("Got the batches %q, and that the first one waits: %t, want %q, and that it does", *batches, waits[0], want)
		}
	})
}

// TestWhatServesWaits has a request that is served alone, and meets other writers.
func TestWhatServesWaits(t *testing.T) {
	for _, waits := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			noted := false
			q := turns.New(backoff(), func(ctx context.Context, _ string, batch []*turn) {
				if waits {
					reads.Queued(ctx)
				}
				finishAll(batch, nil)
			})
			if err := q.Do(noting(t, &noted), "shop", "a"); err != nil || noted != waits {
				t.Errorf("Got the error %v, and that it waits: %t, want %t", err, noted, waits)
			}
		})
	}
}

// TestCanceled has clients hang up: one whose request is being served, one that waits, and the only one. The others do
// not notice, and the request that waited is never served.
func TestCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, proceed, batches := blocked(func(ctx context.Context, batch []*turn) { finishAll(batch, ctx.Err()) })
		ctx, hangUp := context.WithCancel(t.Context())
		canceled := make(chan error, 2)
		for _, item := range []string{"first", "second"} {
			go func() { canceled <- q.Do(ctx, "shop", item) }()
			synctest.Wait()
		}
		other := send(t, q, long, "shop", "other")
		hangUp()
		for range 2 {
			if err := <-canceled; !errors.Is(err, context.Canceled) {
				t.Errorf("Got %v, want that the request was canceled", err)
			}
		}
		close(proceed)
		if got := <-other; got.err != nil {
			t.Errorf("Got %v, want none", got.err)
		}
		if want := []string{"first", "other"}; !slices.Equal(*batches, want) {
			t.Errorf("Got the batches %q, want %q", *batches, want)
		}
		if err := q.Do(ctx, "shop", "late"); !errors.Is(err, context.Canceled) {
			t.Errorf("Got %v for a request that had ended before, want that it was canceled", err)
		}
	})
}

// TestEndedIsNeverAdmitted has a request end while it is served with success. Its result is not success.
func TestEndedIsNeverAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), long)
			q := turns.New(backoff(), func(_ context.Context, _ string, batch []*turn) {
				cancel()
				finishAll(batch, nil)
			})
			if err := q.Do(ctx, "shop", "a"); !errors.Is(err, context.Canceled) {
				t.Fatalf("Got %v, want that the request was canceled", err)
			}
		}
	})
}

// TestPanic has an attempt panic. All requests of the batch that are not finished fail, and the next ones are served.
func TestPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, proceed, _ := blocked(func(_ context.Context, batch []*turn) {
			batch[0].Finish(nil)
			if len(batch) > 1 {
				panic("on purpose")
			}
		})
		all := []<-chan answer{send(t, q, long, "shop", "a"), send(t, q, long, "shop", "b"), send(t, q, long, "shop", "c"), send(t, q, long, "shop", "d")}
		close(proceed)
		for i, one := range all {
			got := <-one
			if failed := got.err != nil && strings.Contains(got.err.Error(), "on purpose"); failed != (i > 1) || got.took != 0 {
				t.Errorf("Got %v after %v for request %d", got.err, got.took, i)
			}
		}
		if got := <-send(t, q, long, "shop", "after"); got.err != nil {
			t.Errorf("Got %v after the panic, want none", got.err)
		}
	})
}

// TestWithoutDeadline has a request without a deadline wait for something that never comes.
func TestWithoutDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := turns.New(backoff(), func(ctx context.Context, _ string, _ []*turn) { <-ctx.Done() })
		start := time.Now()
		if err := q.Do(t.Context(), "shop", "a"); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != long {
			t.Errorf("Got %v after %v, want an end after %v", err, time.Since(start), long)
		}
		synctest.Wait()
	})
}

// TestStorm has many requests with different deadlines for several objects, with conflicts, pauses and clients that hang
// up. A request that has time left is never lost, and no request is served twice.
func TestStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients, each = 20, 50
		var attempts atomic.Int64
		served := make([]atomic.Int64, clients*each)
		q := turns.New(backoff(), func(_ context.Context, _ string, batch []*turns.Turn[int]) {
			time.Sleep(3 * time.Millisecond)
			// Two of three writes meet another writer.
			won := attempts.Add(1)%3 == 0
			for _, t := range batch {
				switch {
				case t.Ended():
				case won:
					served[t.Item].Add(1)
					t.Finish(nil)
				default:
					t.Retry(errConflict)
				}
			}
		})
		done := make(chan error, clients)
		for c := range clients {
			go func() {
				var err error
				for i := range each {
					item, timeout := c*each+i, long
					if item%4 == 0 {
						timeout = time.Duration(item%300+1) * time.Millisecond
					}
					ctx, cancel := context.WithTimeout(t.Context(), timeout)
					got := q.Do(ctx, fmt.Sprint("object-", item%3), item)
					cancel()
					switch n := served[item].Load(); {
					case got != nil && timeout == long:
						err = fmt.Errorf("request %d failed: %w", item, got)
					case got == nil && n != 1 || n > 1:
						err = fmt.Errorf("request %d was served %d times", item, n)
					}
				}
				done <- err
			}()
		}
		for range clients {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}
