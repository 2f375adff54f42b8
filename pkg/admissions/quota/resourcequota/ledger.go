package resourcequota

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	engine "k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	resourcequotaapi "k8s.io/apiserver/pkg/admission/plugin/resourcequota/apis/resourcequota"
	quotav1 "k8s.io/apiserver/pkg/quota/v1"

	"github.com/postern-dev/postern/internal/pause"
)

const (
	// settleTimeout bounds a charge of a request that has no deadline.
	settleTimeout = 10 * time.Second
	// minPause and maxPause bound the pause after a conflict with another writer.
	minPause = 5 * time.Millisecond
	maxPause = 250 * time.Millisecond
)

// errUnsettled is the result of a request whose charge stopped halfway.
var errUnsettled = errors.New("the quota was not charged")

// ledger charges quotas for requests. One request at a time writes the quotas of a namespace, for all requests that
// wait there, so a burst of requests costs few writes. The requests do all the work themselves: there is nothing in the
// background, and nothing remains of a namespace when no request waits in it.
//
// Upstream: the evaluator of k8s.io/apiserver also charges in batches. It knows no deadlines, so it charges requests
// that have long been answered, and it gives up after three conflicts, which several replicas easily cause.
type ledger struct {
	quotas  *quotas
	limited []resourcequotaapi.LimitedResource

	mu       sync.Mutex
	accounts map[string]*account
}

// account holds the requests that wait in one namespace.
type account struct {
	// requests is the number of requests that use the account.
	requests int
	// turn is taken by the request that writes.
	turn    chan struct{}
	waiting []*demand
}

// demand is a request that quotas are to be charged for.
type demand struct {
	attributes admission.Attributes
	evaluator  quotav1.Evaluator

	// gone is closed when nobody waits for the result any more.
	gone <-chan struct{}
	// done is closed when err is the result.
	done chan struct{}
	err  error
}

func (d *demand) finish(err error) {
	d.err = err
	close(d.done)
}

func newLedger(q *quotas, limited []resourcequotaapi.LimitedResource) *ledger {
	return &ledger{quotas: q, limited: limited, accounts: map[string]*account{}}
}

// charge charges the quotas of a namespace. It returns an error of the quota engine if the request does not fit, and
// another error if it could not charge. In that case, and if ctx ends, the request may have been charged all the same:
// the quota controller corrects it.
func (l *ledger) charge(ctx context.Context, namespace string, d *demand) error {
	d.gone, d.done = ctx.Done(), make(chan struct{})
	a := l.join(namespace, d)
	defer l.leave(namespace, a)
	select {
	case <-d.done:
	case a.turn <- struct{}{}:
		l.serve(ctx, namespace, a, d)
	case <-ctx.Done():
		return fmt.Errorf("waiting to charge a quota: %w", ctx.Err())
	}
	return d.err
}

func (l *ledger) join(namespace string, d *demand) *account {
	l.mu.Lock()
	defer l.mu.Unlock()
	a, ok := l.accounts[namespace]
	if !ok {
		a = &account{turn: make(chan struct{}, 1)}
		l.accounts[namespace] = a
	}
	a.requests++
	a.waiting = append(a.waiting, d)
	return a
}

func (l *ledger) leave(namespace string, a *account) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.requests--; a.requests == 0 {
		delete(l.accounts, namespace)
	}
}

// serve settles all waiting requests, in the turn of d. Another request may have settled d already.
func (l *ledger) serve(ctx context.Context, namespace string, a *account, d *demand) {
	defer func() { <-a.turn }()
	select {
	case <-d.done:
		return
	default:
	}
	l.mu.Lock()
	batch := a.waiting
	a.waiting = nil
	l.mu.Unlock()
	// Whatever happens, no request waits for nothing.
	defer func() {
		for _, d := range batch {
			select {
			case <-d.done:
			default:
				d.finish(errUnsettled)
			}
		}
	}()
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(settleTimeout)
	}
	// A client that hangs up must not stop the charge for the others.
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	defer cancel()
	l.settle(ctx, namespace, batch)
}

// settle checks the requests against the quotas one after the other, and then writes the quotas. After a conflict it
// repeats this with the quotas that were not written.
func (l *ledger) settle(ctx context.Context, namespace string, pending []*demand) {
	fail := func(err error) {
		for _, d := range pending {
			d.finish(err)
		}
	}
	before, err := l.quotas.in(namespace)
	limited := l.limited
	for pause := minPause; err == nil; pause = min(2*pause, maxPause) {
		var after []corev1.ResourceQuota
		if pending, after = fit(before, pending, limited); len(pending) == 0 {
			return
		}
		var missed []string
		if missed, err = l.write(ctx, before, after); err != nil {
			break
		}
		if len(missed) == 0 {
			fail(nil)
			return
		}
		if err = rest(ctx, pause); err != nil {
			break
		}
		before, err = l.quotas.live(ctx, namespace, missed)
		// That there is a quota for the limited resources has been checked with all quotas.
		limited = nil
	}
	fail(err)
}

// fit returns the requests that have to be charged, and the quotas after that. It finishes all other requests. A
// request for which nobody waits any more is not charged.
func fit(quotas []corev1.ResourceQuota, demands []*demand, limited []resourcequotaapi.LimitedResource) ([]*demand, []corev1.ResourceQuota) {
	var charged []*demand
	for _, d := range demands {
		select {
		case <-d.gone:
			d.finish(errUnsettled)
			continue
		default:
		}
		after, err := engine.CheckRequest(quotas, d.attributes, d.evaluator, limited)
		if err != nil || !changed(quotas, after) {
			d.finish(err)
			continue
		}
		charged, quotas = append(charged, d), after
	}
	return charged, quotas
}

// changed reports whether a request changed the usage of a quota.
func changed(before, after []corev1.ResourceQuota) bool {
	for i := range after {
		if !quotav1.Equals(before[i].Status.Used, after[i].Status.Used) {
			return true
		}
	}
	return false
}

// write writes the quotas that changed. It returns the names of those that someone else wrote in the meantime. A quota
// that is gone limits nothing. An error means that a write may have happened or not, so it is not repeated: repeating
// could charge twice.
func (l *ledger) write(ctx context.Context, before, after []corev1.ResourceQuota) ([]string, error) {
	var missed []string
	for i := range after {
		if !changed(before[i:i+1], after[i:i+1]) {
			continue
		}
		switch err := l.quotas.write(ctx, &after[i]); {
		case apierrors.IsConflict(err):
			missed = append(missed, after[i].Name)
		case err != nil && !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("charging quota %s: %w", after[i].Name, err)
		}
	}
	return slices.Clip(missed), nil
}

// rest pauses for a random time, so that replicas in conflict do not meet again.
func rest(ctx context.Context, most time.Duration) error {
	if err := pause.Random(ctx, most); err != nil {
		return fmt.Errorf("charging a quota that others charge too: %w", err)
	}
	return nil
}
