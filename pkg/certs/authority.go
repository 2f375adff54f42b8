package certs

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/klog/v2"
)

// Authority is the Source that signs its own serving certificate with the CA of a Store. It renews the certificate at
// two thirds of its life. When a new CA is to sign, the Authority waits until clients hold the new CA. It takes the
// steps of a CA rotation, and repairs a lost CA.
type Authority struct {
	current
	store   Store
	options Options

	// Only the constructor and then the goroutine of Run use the fields below.

	// ca is the CA that was loaded last, or nil if no CA was loaded.
	ca *CA
	// signed is the CA that signed the serving certificate. It is nil while the serving certificate is a makeshift.
	signed *keyPair
	// known are the CAs that could sign again.
	known []*keyPair
	// lost is the time since which the stored CA has been missing or broken.
	lost time.Time
}

// NewAuthority loads the CA, or creates it if there is none, and signs the first certificate. If that fails, the
// Authority is not ready, reports the reason, and tries again.
func NewAuthority(ctx context.Context, store Store, o Options) (*Authority, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	a := &Authority{current: newCurrent(o.Clock, o.Settle), store: store, options: o}
	if o.Registered != nil {
		bundles, err := o.Registered(ctx)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Could not look up which CAs are registered")
		} else {
			a.Held(bundles)
		}
	}
	if err := a.refresh(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "There is no CA to sign with yet, not ready")
	}
	return a, nil
}

// Run implements Source.
func (a *Authority) Run(ctx context.Context) error {
	a.poll(ctx, a.options.interval(), a.refresh)
	return nil
}

// Problem returns why there is no CA to sign with, or nil if there is one.
func (a *Authority) Problem() error { return a.served.Load().problem }

// refresh takes the next step with the stored CA. If the store cannot be read, the CA that was loaded before stays in
// use, so the replica still renews its certificate.
func (a *Authority) refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	now := a.clock.Now()
	ca, failure := a.load(ctx, now)
	if failure == nil {
		ca, failure = a.advance(ctx, ca, now)
	}
	if ca != nil {
		a.ca = ca
	}
	if a.ca == nil {
		return errors.Join(failure, a.makeshift(failure))
	}
	failure = errors.Join(failure, a.use(ctx, a.ca))
	if a.served.Load() == nil {
		return errors.Join(failure, a.makeshift(failure))
	}
	return failure
}

// use serves a certificate that the CA signed, and publishes the bundle of the CA.
func (a *Authority) use(ctx context.Context, ca *CA) error {
	now := a.clock.Now()
	a.remember(ca, now)
	signer := a.choose(ca, now)
	if err := signer.validity(now); err != nil {
		return err
	}
	next := served{anchor: signer.cert, bundle: ca.bundle}
	if !ca.publishes(signer.cert) {
		next.bundle = append(slices.Clone(ca.bundle), signer.cert)
	}
	var err error
	if next.pathKeys, err = a.derive(ca, signer); err != nil {
		return err
	}
	reason := a.due(signer, now)
	if reason == "" {
		next.cert = a.served.Load().cert
	} else if next.cert, err = signer.issue(&a.options, now); err != nil {
		return err
	}
	a.signed = signer
	a.replace(next)
	a.options.Metrics.expiry(ca.signer.cert.NotAfter)
	if reason != "" {
		klog.FromContext(ctx).Info("Serving certificate signed", "reason", reason, "ca", shortName(signer.cert), "notAfter", next.cert.Leaf.NotAfter)
	}
	return nil
}

// choose returns the CA to sign with. It is the signer of the stored CA, unless clients do not hold that signer yet
// and hold another known CA.
func (a *Authority) choose(ca *CA, now time.Time) *keyPair {
	if a.trusts(ca.signer.cert, now) && ca.signer.isValid(now) {
		return ca.signer
	}
	candidates := slices.Clone(a.known)
	if a.signed != nil {
		candidates = append([]*keyPair{a.signed}, candidates...)
	}
	for _, p := range candidates {
		if a.holds(p.cert) && p.isValid(now) {
			return p
		}
	}
	if a.signed != nil && a.signed.isValid(now) {
		return a.signed
	}
	return ca.signer
}

// remember keeps the keys of the loaded CAs, newest first.
func (a *Authority) remember(ca *CA, now time.Time) {
	pairs := []*keyPair{ca.signer}
	if ca.next != nil {
		pairs = append(pairs, ca.next)
	}
	for _, p := range a.known {
		if !p.expired(now) && !slices.ContainsFunc(pairs, func(q *keyPair) bool { return q.cert.Equal(p.cert) }) {
			pairs = append(pairs, p)
		}
	}
	a.known = pairs[:min(len(pairs), maxKnown)]
}

// derive returns the path keys. The first key is that of the CA that signs for this replica, because every replica
// has loaded that CA.
func (a *Authority) derive(ca *CA, signer *keyPair) ([][]byte, error) {
	pairs := []*keyPair{signer, ca.signer}
	if ca.next != nil {
		pairs = append(pairs, ca.next)
	}
	var keys [][]byte
	add := func(key []byte) {
		if len(key) > 0 && !slices.ContainsFunc(keys, func(k []byte) bool { return slices.Equal(k, key) }) {
			keys = append(keys, key)
		}
	}
	for _, p := range pairs {
		key, err := p.pathKey()
		if err != nil {
			return nil, err
		}
		add(key)
	}
	for _, l := range ca.leaving {
		add(l.PathKey)
	}
	return keys, nil
}

// due returns the reason to sign a new certificate, or an empty string. A certificate that expires with the CA is not
// renewed, because the next one would expire at the same time.
func (a *Authority) due(signer *keyPair, now time.Time) string {
	if a.signed == nil {
		return "there was none"
	}
	if !a.signed.cert.Equal(signer.cert) {
		return "another CA signs"
	}
	leaf := a.served.Load().cert.Leaf
	if now.Before(leaf.NotBefore) {
		return "the clock was set back"
	}
	if !now.Before(renewal(leaf.NotBefore, leaf.NotAfter)) && leaf.NotAfter.Before(signer.cert.NotAfter) {
		return "two thirds of its life are over"
	}
	return ""
}
