package resourcequota_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/postern-dev/postern/pkg/admit"
)

// The tests of this file run with a fake clock: they end at once, and a deadline passes exactly when it should.

const (
	// patient is the time of a request with the default time-out of a webhook, and hasty that of an impatient user.
	patient = 10 * time.Second
	hasty   = 600 * time.Millisecond
)

// foreign has another writer change a quota before each update, as long as storm is true.
func (s *store) foreign(storm *atomic.Bool) {
	s.before = func(q *corev1.ResourceQuota) error {
		if !storm.Load() {
			return nil
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.version++
		changed := s.quotas[q.Namespace+"/"+q.Name].DeepCopy()
		changed.ResourceVersion = strconv.Itoa(s.version)
		s.quotas[q.Namespace+"/"+q.Name] = changed
		return nil
	}
}

// settled returns a replica whose informers are idle: a request for the fake client blocks all others.
func (s *store) settled(t *testing.T) admit.Func {
	t.Helper()
	replica := s.replica(t)
	synctest.Wait()
	return replica
}

// answer is the result of a request, and the time that it took.
type answer struct {
	err  error
	took time.Duration
}

// ask sends a request with its own deadline.
func ask(t *testing.T, replica admit.Func, timeout time.Duration, name string) <-chan answer {
	t.Helper()
	out := make(chan answer, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		start := time.Now()
		err := replica(ctx, newPod("shop", name))
		out <- answer{err, time.Since(start)}
	}()
	return out
}

// isTryAgain reports whether a request was denied as kube-apiserver denies it after a conflict.
func isTryAgain(err error) bool {
	denial, ok := errors.AsType[*admit.Denial](err)
	return ok && denial.Status().Code == http.StatusConflict && strings.Contains(err.Error(), "try again")
}

// TestOwnDeadline has five patient requests wait behind a hasty one while another writer interferes. The hasty request
// ends, and the others are admitted when the other writer stops.
func TestOwnDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(quotaOf("shop", "team", 10, "pods"))
		var storm, begun atomic.Bool
		storm.Store(true)
		s.foreign(&storm)
		interfere, proceed := s.before, make(chan struct{})
		s.before = func(q *corev1.ResourceQuota) error {
			if begun.CompareAndSwap(false, true) {
				<-proceed
				return nil
			}
			return interfere(q)
		}
		replica := s.settled(t)
		writer := ask(t, replica, patient, "writer")
		synctest.Wait()
		hurry := ask(t, replica, hasty, "hasty")
		synctest.Wait()
		var others []<-chan answer
		for i := range 5 {
			others = append(others, ask(t, replica, patient, fmt.Sprint("web-", i)))
			synctest.Wait()
		}
		close(proceed)
		if got := <-writer; got.err != nil {
			t.Errorf("Got %v, want none", got.err)
		}
		if got := <-hurry; got.err == nil || got.took > hasty {
			t.Errorf("The hasty request ended after %v with %v, want an error after %v at most", got.took, got.err, hasty)
		}
		time.Sleep(2 * time.Second)
		storm.Store(false)
		for i, other := range others {
			if got := <-other; got.err != nil {
				t.Errorf("Request %d failed after %v of %v: %v", i, got.took, patient, got.err)
			}
		}
		if used := s.used(t, "shop/team", "pods"); used != 6 {
			t.Errorf("Got %d pods in the quota, want 6", used)
		}
	})
}

// TestHastyUser has one user send hasty requests all the time, while another writer interferes. No other request fails.
func TestHastyUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(quotaOf("shop", "team", 1000, "pods"))
		var storm atomic.Bool
		storm.Store(true)
		s.foreign(&storm)
		replica := s.settled(t)
		var others []<-chan answer
		var admitted int64
		var hurried []<-chan answer
		for i := range 80 {
			for n := range 2 {
				hurried = append(hurried, ask(t, replica, hasty*time.Duration(n+1), fmt.Sprintf("hasty-%d-%d", i, n)))
				synctest.Wait()
			}
			others = append(others, ask(t, replica, patient, fmt.Sprint("web-", i)))
			time.Sleep(100 * time.Millisecond)
		}
		storm.Store(false)
		for i, other := range others {
			got := <-other
			if got.err != nil {
				t.Errorf("Request %d failed after %v of %v: %v", i, got.took, patient, got.err)
			}
			admitted++
		}
		for _, h := range hurried {
			if got := <-h; got.err == nil {
				admitted++
			} else if got.took > 2*hasty {
				t.Errorf("A hasty request ended after %v", got.took)
			}
		}
		if used := s.used(t, "shop/team", "pods"); used != admitted {
			t.Errorf("Got %d pods in the quota, want the %d that were admitted", used, admitted)
		}
	})
}

// TestConflictThatDoesNotEnd has another writer always be first. Each request is denied before its own deadline, in the
// words of kube-apiserver, and nothing is charged.
func TestConflictThatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(quotaOf("shop", "team", 10, "pods"))
		var storm atomic.Bool
		storm.Store(true)
		s.foreign(&storm)
		replica := s.settled(t)
		for _, timeout := range []time.Duration{time.Millisecond, hasty, time.Second, patient} {
			got := <-ask(t, replica, timeout, "web")
			if !isTryAgain(got.err) || got.took >= timeout {
				t.Errorf("With %v left: got %v after %v, want a conflict before that", timeout, got.err, got.took)
			}
		}
		all := map[time.Duration]<-chan answer{}
		for _, timeout := range []time.Duration{hasty, time.Second, 3 * time.Second, patient} {
			all[timeout] = ask(t, replica, timeout, fmt.Sprint("web-", timeout))
		}
		for timeout, one := range all {
			if got := <-one; !isTryAgain(got.err) || got.took >= timeout || got.took < timeout/2 {
				t.Errorf("Together with others, with %v left: got %v after %v, want a conflict shortly before that", timeout, got.err, got.took)
			}
		}
		if used := s.used(t, "shop/team", "pods"); used != 0 {
			t.Errorf("Got %d pods in the quota, want none", used)
		}
	})
}

// TestStuckWriter has the API server not answer to a write. The request that caused the write ends at its own deadline,
// too, and so do the others. A request that ended before its charge was written costs nothing.
func TestStuckWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(quotaOf("shop", "team", 10, "pods"))
		proceed := make(chan struct{})
		s.before = func(*corev1.ResourceQuota) error { <-proceed; return nil }
		replica := s.settled(t)
		first := ask(t, replica, hasty, "first")
		synctest.Wait()
		second := ask(t, replica, 2*hasty, "second")
		third := ask(t, replica, patient, "third")
		for i, one := range []<-chan answer{first, second} {
			if got := <-one; !errors.Is(got.err, context.DeadlineExceeded) || got.took != hasty*time.Duration(i+1) {
				t.Errorf("Got %v after %v, want the own deadline", got.err, got.took)
			}
		}
		close(proceed)
		if got := <-third; got.err != nil {
			t.Errorf("Got %v after %v of %v, want none", got.err, got.took, patient)
		}
		// The first request is charged, because the API server may store its pod.
		if used := s.used(t, "shop/team", "pods"); used != 2 {
			t.Errorf("Got %d pods in the quota, want 2", used)
		}
	})
}

// TestPanic has the client panic in a write. The requests of that write fail, and the next one is served.
func TestPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(quotaOf("shop", "team", 10, "pods"))
		var calls atomic.Int64
		proceed := make(chan struct{})
		s.before = func(*corev1.ResourceQuota) error {
			switch calls.Add(1) {
			case 1:
				<-proceed
			case 2:
				panic("on purpose")
			}
			return nil
		}
		replica := s.settled(t)
		first := ask(t, replica, patient, "first")
		synctest.Wait()
		var together []<-chan answer
		for i := range 3 {
			together = append(together, ask(t, replica, patient, fmt.Sprint("web-", i)))
		}
		synctest.Wait()
		close(proceed)
		if got := <-first; got.err != nil {
			t.Errorf("Got %v, want none", got.err)
		}
		for _, one := range together {
			if got := <-one; got.err == nil || got.took > 0 {
				t.Errorf("Got %v after %v, want an error at once", got.err, got.took)
			}
		}
		if got := <-ask(t, replica, patient, "after"); got.err != nil {
			t.Errorf("Got %v after the panic, want none", got.err)
		}
	})
}

// TestStaleCacheLosesNothing has three replicas, whose caches never change, and another writer charge the same quotas at
// the same time, beginning with the same old usage. Every charge is in the quotas: a charge from an old usage is a
// conflict.
func TestStaleCacheLosesNothing(t *testing.T) {
	const clients, each, foreign = 12, 20, 50
	s := newStore(quotaOf("shop", "team", 1000, "pods"), quotaOf("shop", "other", 1000, "count/pods"))
	replicas := []admit.Func{s.replica(t), s.replica(t), s.replica(t)}
	var all sync.WaitGroup
	all.Go(func() {
		for range foreign {
			s.mu.Lock()
			s.version++
			q := s.quotas["shop/team"].DeepCopy()
			used := q.Status.Used["pods"]
			used.Add(*quotaOf("", "", 1, "pods").Status.Hard.Pods())
			q.Status.Used["pods"], q.ResourceVersion = used, strconv.Itoa(s.version)
			s.quotas["shop/team"] = q
			s.mu.Unlock()
			time.Sleep(time.Millisecond)
		}
	})
	got := creations(t, replicas, clients, each, func(c, i int) *admit.Request { return newPod("shop", fmt.Sprintf("web-%d-%d", c, i)) })
	all.Wait()
	if used := s.used(t, "shop/team", "pods"); got != clients*each || used != got+foreign {
		t.Errorf("Got %d pods, and %d in the quota, want %d and %d", got, used, clients*each, clients*each+foreign)
	}
	if used := s.used(t, "shop/other", "count/pods"); used != got {
		t.Errorf("Got %d pods in the other quota, want %d", used, got)
	}
}
