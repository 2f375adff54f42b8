// Package certs is where a webhook server's certificate comes from, and the CA bundle that clients verify it
// by. An Authority signs its own short-lived certificates with a CA that all replicas share through a Store:
// the serving key never leaves memory, so there is no volume, no job and no restart. Files serves a
// certificate that somebody else keeps up to date. Both are a Source.
package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Source is where a server's certificate and the CA bundle that clients verify it by come from. All but Run
// may be called from any number of goroutines.
type Source interface {
	// GetCertificate is the callback of that name in tls.Config. It takes no lock.
	GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error)

	// Bundle is the PEM of the CAs by which clients are to verify the server. Nothing means those that the
	// client's system trusts.
	Bundle() []byte

	// Changed is closed once the bundle of this moment has been replaced. Whoever hands the bundle on asks
	// for the channel first and for the bundle second; then no change falls between the two.
	Changed() <-chan struct{}

	// Run keeps the certificate and the bundle current until ctx ends, and then returns nil. What it cannot
	// renew it goes on serving. It is called once.
	Run(ctx context.Context) error

	// Ready is nil while the certificate served is valid.
	Ready() error

	// NotAfter is when the certificate served expires.
	NotAfter() time.Time
}

var (
	_ Source = (*Authority)(nil)
	_ Source = (*Files)(nil)
)

// current is what a Source serves now. A single goroutine replaces it: that of the constructor, then that of
// Run. Everybody else only reads.
type current struct {
	clock  clock.WithTicker
	served atomic.Pointer[served]
}

// served belongs together and is therefore replaced together. It is never changed.
type served struct {
	cert    *tls.Certificate
	bundle  []byte
	changed chan struct{}
}

// GetCertificate implements Source.
func (c *current) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return c.served.Load().cert, nil
}

// Bundle implements Source. The caller may keep and change what it gets.
func (c *current) Bundle() []byte {
	return bytes.Clone(c.served.Load().bundle)
}

// Changed implements Source.
func (c *current) Changed() <-chan struct{} {
	return c.served.Load().changed
}

// Ready implements Source.
func (c *current) Ready() error {
	leaf, now := c.served.Load().cert.Leaf, c.clock.Now()
	if now.After(leaf.NotAfter) {
		return fmt.Errorf("the serving certificate expired at %s", leaf.NotAfter.Format(time.RFC3339))
	}
	if now.Before(leaf.NotBefore) {
		return fmt.Errorf("the serving certificate is not valid before %s", leaf.NotBefore.Format(time.RFC3339))
	}
	return nil
}

// NotAfter implements Source.
func (c *current) NotAfter() time.Time {
	return c.served.Load().cert.Leaf.NotAfter
}

// replace tells those who wait for a change only after the new bundle can be read, and only if it is new.
func (c *current) replace(cert *tls.Certificate, bundle []byte) {
	old := c.served.Load()
	if old != nil && bytes.Equal(old.bundle, bundle) {
		c.served.Store(&served{cert: cert, bundle: old.bundle, changed: old.changed})
		return
	}
	c.served.Store(&served{cert: cert, bundle: bundle, changed: make(chan struct{})})
	if old != nil {
		close(old.changed)
	}
}

// serves says whether nothing would change by replacing what is served with these.
func (c *current) serves(cert *tls.Certificate, bundle []byte) bool {
	now := c.served.Load()
	return now != nil && bytes.Equal(now.bundle, bundle) &&
		slices.EqualFunc(now.cert.Certificate, cert.Certificate, bytes.Equal)
}

// poll calls refresh at every tick until ctx ends. It is a short tick and a look at the wall clock, not a timer
// set to the moment of renewal, because the monotonic clock that timers run on stops while a machine is
// suspended. An outage is logged when it begins and when it ends, however long it lasts.
func (c *current) poll(ctx context.Context, every time.Duration, refresh func(context.Context) error) {
	logger := klog.FromContext(ctx)
	ticker := c.clock.NewTicker(every)
	defer ticker.Stop()
	for failing := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		err := refresh(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failing:
			logger.Error(err, "Certificates cannot be refreshed, those at hand stay in use", "notAfter", c.NotAfter())
		case err == nil && failing:
			logger.Info("Certificates can be refreshed again", "notAfter", c.NotAfter())
		}
		failing = err != nil
	}
}
