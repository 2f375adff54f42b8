package fleetquota

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/pkg/admissions/admit"
	"github.com/postern-dev/postern/pkg/admissions/fleetquota/ledger"
	quotav1alpha1 "github.com/postern-dev/postern/pkg/apis/quota/v1alpha1"
)

const (
	// settleTimeout bounds a decision of a request that has no deadline.
	settleTimeout = 10 * time.Second
	// maxName bounds a name in a warning.
	maxName = 40
)

// book is the account of one quota, with the requests that wait for it. One request at a time writes, for all that wait,
// so a burst of requests costs few writes. Requests that fit into the allowance never wait for the hub.
type book struct {
	account *ledger.Account
	metrics *decisions

	local, hub turns
}

func newBook(account *ledger.Account, m *decisions) *book {
	return &book{account: account, metrics: m, local: turns{turn: make(chan struct{}, 1)}, hub: turns{turn: make(chan struct{}, 1)}}
}

// decide charges a demand. It returns nil, or the reason why the demand does not fit, or another error if it could not
// decide. A dry run charges nothing.
func (b *book) decide(ctx context.Context, d *ledger.Demand, dry bool) error {
	if dry {
		known := b.account.Known()
		if known == nil || !ledger.Fits(known, d) {
			return b.reason()
		}
		return nil
	}
	a := &ask{Demand: d}
	err := b.local.do(ctx, a, func(ctx context.Context, batch []*ask) {
		rest, err := b.account.Charge(ctx, demands(batch))
		finish(batch, rest, err)
	})
	outcome := ledger.Within
	if err == nil && a.left {
		a = &ask{Demand: d}
		err = b.hub.do(ctx, a, func(ctx context.Context, batch []*ask) {
			rest, _, err := b.account.Decide(ctx, demands(batch))
			finish(batch, rest, err)
		})
		outcome = ledger.Claimed
	}
	switch {
	case isReason(err):
		outcome = ledger.Refused
	case err != nil:
		outcome = failed
	}
	b.metrics.count(b.account.Name(), outcome)
	return err
}

// reason returns the reason why a demand does not fit that was not claimed.
func (b *book) reason() error {
	if away := b.account.Away(); away != nil {
		return away
	}
	return &ledger.ShortError{}
}

func isReason(err error) bool {
	if err == nil {
		return false
	}
	if _, ok := errors.AsType[*ledger.ShortError](err); ok {
		return true
	}
	_, ok := errors.AsType[*ledger.AwayError](err)
	return ok
}

// cancel removes the charge of a request that another quota denied. If it fails, the charge ends with the time-out of
// the request.
func (b *book) cancel(ctx context.Context, d *ledger.Demand) {
	if err := b.account.Cancel(ctx, d.Request); err != nil {
		klog.FromContext(ctx).Error(err, "Could not cancel a charge", "quota", b.account.Name())
	}
}

// denial is the answer to a demand that does not fit. Other errors are failures.
func denial(r *admit.Request, quota string, b *book, d *ledger.Demand, err error) error {
	known := b.account.Known()
	if !isReason(err) || known == nil {
		return err
	}
	extra := ledger.Extra(d, known)
	charged := ledger.Charged(known)
	exceeded := ledger.Named(extra, ledger.Beyond(ledger.Sum(charged, extra), known.Status.Allowance))
	for name := range exceeded {
		if _, adds := extra[name]; !adds {
			delete(exceeded, name)
		}
	}
	if len(exceeded) == 0 {
		exceeded = extra
	}
	text := func(l corev1.ResourceList) string { return ledger.Text(ledger.Named(l, exceeded)) }
	parts := []string{
		"exceeded fleet quota: " + quota, "requested: " + text(extra),
		"used: " + text(ledger.Sum(charged, known.Spec.OthersUsed)), "limited: " + text(known.Spec.Hard),
	}
	message := strings.Join(parts, ", ")
	if away, ok := errors.AsType[*ledger.AwayError](err); ok {
		return admit.Forbidden(r, fmt.Errorf("%s; this cluster uses %s of its allowance of %s, and cannot claim more: %w",
			message, text(charged), text(known.Status.Allowance), away))
	}
	return admit.Forbidden(r, fmt.Errorf("%s; claimed by other clusters: %s", message, text(known.Spec.Others)))
}

// warn says how much is left of the resources that the request uses, of those of which little is left.
func (b *book) warn(r *admit.Request, d *ledger.Demand, above int64) {
	known := b.account.Known()
	if known == nil {
		return
	}
	used := ledger.Sum(ledger.Charged(known), known.Spec.OthersUsed)
	for name := range ledger.Extra(d, known) {
		now, limit := used[name], known.Spec.Hard[name]
		if now.AsApproximateFloat64()*100 <= limit.AsApproximateFloat64()*float64(above) {
			continue
		}
		left := limit.DeepCopy()
		left.Sub(now)
		if left.Sign() < 0 {
			left.Sub(left)
		}
		r.Warn("fleet quota %.*s: %s of %s left of %.*s", maxName, known.Name, left.String(), limit.String(), maxName, name)
		return
	}
}

// turns lets one request at a time serve all that wait.
type turns struct {
	turn chan struct{}

	mu      sync.Mutex
	waiting []*ask
}

// ask is a demand that waits.
type ask struct {
	*ledger.Demand

	gone <-chan struct{}
	done chan struct{}
	left bool
	err  error
}

var errUndecided = errors.New("the fleet quota was not charged")

// do waits until the ask has been served, by this request or by another one.
func (t *turns) do(ctx context.Context, a *ask, serve func(context.Context, []*ask)) error {
	a.gone, a.done, a.err = ctx.Done(), make(chan struct{}), errUndecided
	t.mu.Lock()
	t.waiting = append(t.waiting, a)
	t.mu.Unlock()
	select {
	case <-a.done:
	case t.turn <- struct{}{}:
		t.serve(ctx, a, serve)
	case <-ctx.Done():
		return fmt.Errorf("waiting to charge a fleet quota: %w", ctx.Err())
	}
	return a.err
}

func (t *turns) serve(ctx context.Context, a *ask, serve func(context.Context, []*ask)) {
	defer func() { <-t.turn }()
	select {
	case <-a.done:
		return
	default:
	}
	t.mu.Lock()
	batch := t.waiting
	t.waiting = nil
	t.mu.Unlock()
	defer func() {
		for _, a := range batch {
			close(a.done)
		}
	}()
	var present []*ask
	for _, a := range batch {
		select {
		case <-a.gone:
		default:
			present = append(present, a)
		}
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(settleTimeout)
	}
	// A client that hangs up must not stop the decision for the others.
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	defer cancel()
	serve(ctx, present)
}

func demands(batch []*ask) []*ledger.Demand {
	out := make([]*ledger.Demand, 0, len(batch))
	for _, a := range batch {
		out = append(out, a.Demand)
	}
	return out
}

// finish records which demands are left, and why.
func finish(batch []*ask, rest []*ledger.Demand, err error) {
	left := make(map[*ledger.Demand]bool, len(rest))
	for _, d := range rest {
		left[d] = true
	}
	for _, a := range batch {
		if a.left, a.err = left[a.Demand], nil; a.left {
			a.err = err
		}
	}
}

// spaces are the namespaces of the cluster.
type spaces struct {
	cached corev1listers.NamespaceLister
	client kubernetes.Interface
}

func newSpaces(d admit.Deps) *spaces {
	return &spaces{d.Informers.Core().V1().Namespaces().Lister(), d.Client}
}

// selects reports whether a selector selects a namespace.
func (s *spaces) selects(ctx context.Context, selector *metav1.LabelSelector, namespace string) (bool, error) {
	if selector == nil {
		return true, nil
	}
	compiled, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return true, nil //nolint:nilerr // nobody escapes a quota by an invalid selector
	}
	ns, err := admit.Lookup(ctx, s.cached, s.client.CoreV1().Namespaces(), namespace)
	if apierrors.IsNotFound(err) {
		// The API server refuses the object.
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return compiled.Matches(labels.Set(ns.Labels)), nil
}

// allowanceOf decodes an object of the informer of FleetAllowances.
func allowanceOf(obj any) (*quotav1alpha1.FleetAllowance, error) {
	a, ok := obj.(*allowance)
	if !ok {
		return nil, fmt.Errorf("got a %T in the cache of FleetAllowances", obj)
	}
	return a.content, a.err
}
