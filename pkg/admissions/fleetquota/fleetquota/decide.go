package fleetquota

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/internal/fleetquota/ledger"
	"github.com/postern-dev/postern/pkg/admit"
)

const (
	// maxName bounds a name in a warning, and maxReason the reason why an object cannot be counted: it lists containers and
	// fields, of which an object may have 100,000, with names of any length.
	maxName   = 40
	maxReason = 1000
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
	case ledger.IsShortOrAway(err):
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
	text := err.Error()
	if len(text) <= maxReason {
		return err
	}
	return errors.New(strings.ToValidUTF8(text[:maxReason], "") + " ...")
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
