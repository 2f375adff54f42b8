package fleetquota

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/internal/fleetquota/ledger"
	"github.com/postern-dev/postern/internal/shorttext"
	"github.com/postern-dev/postern/internal/turns"
	"github.com/postern-dev/postern/pkg/admit"
)

const (
	// maxName bounds a name in a warning, and maxReason the reason why an object cannot be counted: it lists containers and
	// fields, of which an object may have 100,000, with names of any length.
	maxName   = 40
	maxReason = 1000
)

// book is the account of one quota, with the requests that wait for it. Requests that fit into the allowance never wait
// for the hub.
type book struct {
	account *ledger.Account
	metrics *decisions
	waiting waiting
}

// waiting has the requests that wait for the allowance and for the hub, by book. Those that wait at the same time share one
// write, so a burst of requests costs few writes.
type waiting struct{ local, hub *turns.Queues[*book, *ask] }

// ask is a demand that waits. If left is true, the demand does not fit.
type ask struct {
	*ledger.Demand

	left bool
}

type turn = turns.Turn[*ask]

func newWaiting() waiting {
	return waiting{
		local: turns.New(wait.Backoff{}, func(ctx context.Context, b *book, batch []*turn) {
			rest, err := b.account.Charge(ctx, demands(batch))
			finish(batch, rest, err)
		}),
		hub: turns.New(wait.Backoff{}, func(ctx context.Context, b *book, batch []*turn) {
			rest, _, err := b.account.Decide(ctx, demands(batch))
			finish(batch, rest, err)
		}),
	}
}

func demands(batch []*turn) []*ledger.Demand {
	out := make([]*ledger.Demand, 0, len(batch))
	for _, t := range batch {
		out = append(out, t.Item.Demand)
	}
	return out
}

// finish ends the requests. The demands in rest do not fit, or could not be decided because of an error.
func finish(batch []*turn, rest []*ledger.Demand, err error) {
	left := make(map[*ledger.Demand]bool, len(rest))
	for _, d := range rest {
		left[d] = true
	}
	for _, t := range batch {
		if t.Item.left = left[t.Item.Demand]; t.Item.left {
			t.Finish(err)
		} else {
			t.Finish(nil)
		}
	}
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
	outcome := ledger.Within
	left, err := b.await(ctx, b.waiting.local, d)
	if err == nil && left {
		outcome = ledger.Claimed
		_, err = b.await(ctx, b.waiting.hub, d)
	}
	switch {
	case errors.Is(err, ledger.ErrUncounted):
		outcome = ledger.Full
	case ledger.IsShortOrAway(err):
		outcome = ledger.Refused
	case err != nil:
		outcome = failed
	}
	b.metrics.count(b.account.Name(), outcome)
	return err
}

// await waits until a demand is served. It returns true if the demand does not fit.
func (b *book) await(ctx context.Context, in *turns.Queues[*book, *ask], d *ledger.Demand) (bool, error) {
	a := &ask{Demand: d}
	err := in.Do(ctx, b, a)
	if ended := ctx.Err(); ended != nil {
		return false, fmt.Errorf("waiting to charge a fleet quota: %w", ended)
	}
	return err == nil && a.left, err
}

// reason returns the reason why a demand does not fit that was not claimed.
func (b *book) reason() error {
	if away := b.account.Away(); away != nil {
		return away
	}
	return &ledger.ShortError{}
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
	if errors.Is(err, ledger.ErrUncounted) {
		return admit.TooMany(err)
	}
	known := b.account.Known()
	if !ledger.IsShortOrAway(err) || known == nil {
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

// shortened returns an error with the beginning of the text of another one.
func shortened(err error) error {
	return errors.New(shorttext.Of(err.Error(), maxReason))
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
