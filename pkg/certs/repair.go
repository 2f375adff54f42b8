package certs

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// load loads the stored CA. It repairs or creates the CA if it is missing or broken.
func (a *Authority) load(ctx context.Context, now time.Time) (*CA, error) {
	ca, err := a.store.Load(ctx)
	var invalid *InvalidError
	switch {
	case err == nil && ca.signer.early(now):
		return a.whenInvalid(ctx, &InvalidError{Err: ca.signer.validity(now), version: ca.version, isEarly: true}, now)
	case err == nil:
		a.lost = time.Time{}
		return ca, nil
	case errors.Is(err, ErrNoCA):
		return a.whenMissing(ctx, err, now)
	case errors.As(err, &invalid):
		return a.whenInvalid(ctx, invalid, now)
	}
	return nil, fmt.Errorf("loading the CA: %w", err)
}

// whenMissing writes back the CA that this replica holds while a webhook is registered with it. If none is, the CA
// was uninstalled. A starting replica leaves the repair to the replicas that hold the CA, and creates a new CA if
// there is no such replica.
func (a *Authority) whenMissing(ctx context.Context, missing error, now time.Time) (*CA, error) {
	if a.ca == nil {
		if !a.unsigned() && !a.waited(now, a.patience()) {
			return nil, fmt.Errorf("%w, but webhooks are registered with one: waiting for a replica that holds it to write it back", missing)
		}
		return a.create(ctx)
	}
	if a.unsigned() || !a.holds(a.ca.signer.cert) && !a.holds(a.signed.cert) {
		a.lost = time.Time{}
		return nil, missing
	}
	if !a.waited(now, a.options.interval()) {
		return nil, missing
	}
	ca, err := a.store.Create(ctx, a.ca)
	if err != nil {
		return nil, fmt.Errorf("the CA was lost, and could not be written back: %w", err)
	}
	return a.repaired(ctx, ca, reasonMissing, missing), nil
}

// whenInvalid writes back the CA that this replica holds. A starting replica waits for other replicas to do that. If
// none does, it creates a new CA, which clients learn of before it is used. An intact CA that nobody has registered, and that
// is not valid yet, is replaced at once.
func (a *Authority) whenInvalid(ctx context.Context, invalid *InvalidError, now time.Time) (*CA, error) {
	if a.ca != nil && !a.ca.signer.early(now) {
		if !a.waited(now, a.options.interval()) {
			return nil, invalid
		}
		good := a.ca.clone()
		good.version = invalid.version
		ca, err := a.store.Update(ctx, good)
		if err != nil {
			return nil, fmt.Errorf("the CA is broken (%w), and could not be repaired: %w", invalid, err)
		}
		return a.repaired(ctx, ca, reasonInvalid, invalid), nil
	}
	if (!invalid.isEarly || !a.unsigned()) && !a.waited(now, a.patience()) {
		return nil, fmt.Errorf("loading the CA: %w; waiting for a replica that holds it to repair it", invalid)
	}
	signer, err := newKeyPair(now, a.options.CAValidity)
	if err != nil {
		return nil, err
	}
	made := newCA(signer)
	made.version = invalid.version
	ca, err := a.store.Update(ctx, made)
	if err != nil {
		return nil, fmt.Errorf("loading the CA: %w; it could not be replaced: %w", invalid, err)
	}
	return a.repaired(ctx, ca, reasonReplaced, invalid), nil
}

func (a *Authority) create(ctx context.Context) (*CA, error) {
	signer, err := newKeyPair(a.clock.Now(), a.options.CAValidity)
	if err != nil {
		return nil, err
	}
	ca, err := a.store.Create(ctx, newCA(signer))
	if err != nil {
		return nil, fmt.Errorf("making the CA: %w", err)
	}
	if ca.signer.cert.Equal(signer.cert) {
		klog.FromContext(ctx).Info("CA created", "ca", shortName(signer.cert), "notAfter", signer.cert.NotAfter)
		a.options.Metrics.step("created")
	}
	a.lost = time.Time{}
	return ca, nil
}

func (a *Authority) repaired(ctx context.Context, ca *CA, reason string, cause error) *CA {
	klog.FromContext(ctx).Error(cause, "The stored CA was repaired", "reason", reason, "ca", shortName(ca.signer.cert))
	a.options.Metrics.repair(reason)
	a.options.notify(corev1.EventTypeWarning, EventCARepaired, fmt.Sprintf("The stored CA was repaired (%s): %v", reason, cause))
	a.lost = time.Time{}
	return ca
}

// waited reports whether the stored CA has been missing or broken for the given time.
func (a *Authority) waited(now time.Time, d time.Duration) bool {
	if a.lost.IsZero() || a.lost.After(now) {
		a.lost = now
	}
	return now.Sub(a.lost) >= d
}

// patience is how long a starting replica waits for other replicas to write back their CA.
func (a *Authority) patience() time.Duration { return 3 * a.options.interval() }

// makeshift serves a certificate that no client trusts, so that probes of the secure port are answered. The
// certificate is not published, and the Source is not ready.
func (a *Authority) makeshift(reason error) error {
	now := a.clock.Now()
	if s := a.served.Load(); s != nil && now.Before(renewal(s.cert.Leaf.NotBefore, s.cert.Leaf.NotAfter)) {
		a.replace(served{cert: s.cert, problem: reason})
		return nil
	}
	signer, err := newKeyPair(now, a.options.CAValidity)
	if err != nil {
		return err
	}
	cert, err := signer.issue(&a.options, now)
	if err != nil {
		return err
	}
	a.replace(served{cert: cert, problem: reason})
	return nil
}
