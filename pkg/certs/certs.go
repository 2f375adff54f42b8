// Package certs provides the certificate of a webhook server, and the CA bundle by which clients verify the server.
// An Authority signs its own short-lived certificates with a CA that all replicas share through a Store. The serving
// key never leaves memory, so no volume, job or restart is needed. Files serves a certificate that is managed
// elsewhere. Both implement Source.
package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Source provides a server's certificate and the CA bundle by which clients verify the server. All methods except Run
// are safe for concurrent use.
type Source interface {
	// GetCertificate is the callback of the same name in tls.Config. It takes no lock.
	GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error)

	// Bundle returns the CAs in PEM by which clients verify the server. An empty bundle means the CAs that the
	// client's system trusts.
	Bundle() []byte

	// PathKeys returns secrets of 32 bytes that all replicas share. They are derived from the private keys of the
	// CAs. The first key belongs to the CA that signs and is the one to register. The other keys belong to CAs that
	// are about to sign or have signed. Paths that were registered with them are still accepted. The list is empty if
	// the certificate is managed elsewhere.
	PathKeys() [][]byte

	// Changed returns a channel that is closed once the current bundle or path keys have been replaced. A caller gets
	// the channel first and the bundle second. Then no change between the two is missed.
	Changed() <-chan struct{}

	// Held takes the bundles by which clients verify the server now: one for each way to reach it, and none if no
	// client has a bundle. It returns the CAs that a bundle lacks, or nothing.
	Held(bundles [][]byte) (missing []byte)

	// Run keeps the certificate and the bundle current until ctx ends, and then returns nil. If a renewal fails, the
	// Source keeps serving the old certificate. Run is called once.
	Run(ctx context.Context) error

	// Ready returns nil while the serving certificate is valid and clients accept it.
	Ready() error

	// NotAfter returns when the serving certificate expires.
	NotAfter() time.Time
}

var (
	_ Source = (*Authority)(nil)
	_ Source = (*Files)(nil)
)

// current holds what a Source serves now, and what the Source knows about its clients. Only the constructor, and then
// the goroutine of Run, replaces the served values. All other goroutines only read them.
type current struct {
	clock  clock.WithTicker
	settle time.Duration
	served atomic.Pointer[served]
	// kick makes Run refresh before the next tick.
	kick chan struct{}

	mu         *sync.Mutex
	registered *registered
}

// served holds values that are replaced together. A served is never modified.
type served struct {
	cert     *tls.Certificate
	bundle   []*x509.Certificate
	pathKeys [][]byte
	// anchor is the CA in the bundle that verifies cert. It is nil if clients need no CA from this Source.
	anchor *x509.Certificate
	// problem is the reason why the Source cannot be ready.
	problem error
	changed chan struct{}
}

func newCurrent(c clock.WithTicker, settle time.Duration) current {
	return current{
		clock: c, settle: settle, kick: make(chan struct{}, 1), mu: &sync.Mutex{},
		registered: &registered{vouched: map[string]bool{}},
	}
}

// GetCertificate implements Source.
func (c *current) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return c.served.Load().cert, nil
}

// Bundle implements Source.
func (c *current) Bundle() []byte { return encode(c.served.Load().bundle...) }

// PathKeys implements Source.
func (c *current) PathKeys() [][]byte {
	keys := c.served.Load().pathKeys
	out := make([][]byte, len(keys))
	for i, key := range keys {
		out[i] = bytes.Clone(key)
	}
	return out
}

// Changed implements Source.
func (c *current) Changed() <-chan struct{} {
	return c.served.Load().changed
}

// Held implements Source. It wakes Run only if the registered bundles have changed.
func (c *current) Held(bundles [][]byte) (missing []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.registered.update(bundles, c.clock.Now()) {
		c.again()
	}
	s := c.served.Load()
	if s == nil || s.anchor == nil || len(bundles) == 0 || c.registered.holds(s.anchor) {
		return nil
	}
	return encode(s.anchor)
}

// again makes Run refresh once more, before the next tick.
func (c *current) again() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// Ready implements Source.
func (c *current) Ready() error {
	s, now := c.served.Load(), c.clock.Now()
	leaf := s.cert.Leaf
	switch {
	case s.problem != nil:
		return s.problem
	case now.After(leaf.NotAfter):
		return fmt.Errorf("the serving certificate expired at %s", leaf.NotAfter.Format(time.RFC3339))
	case now.Before(leaf.NotBefore):
		return fmt.Errorf("the serving certificate is not valid before %s", leaf.NotBefore.Format(time.RFC3339))
	case s.anchor == nil || c.trusts(s.anchor, now):
		return nil
	case c.holds(s.anchor):
		return fmt.Errorf("the CA %s was registered only now: waiting %v for the API servers to learn of it", shortName(s.anchor), c.settle)
	}
	return fmt.Errorf("the CA %s is not in the caBundle of every registered webhook", shortName(s.anchor))
}

// NotAfter implements Source.
func (c *current) NotAfter() time.Time {
	return c.served.Load().cert.Leaf.NotAfter
}

func (c *current) trusts(crt *x509.Certificate, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.registered.trusts(crt, now, c.settle)
}

func (c *current) settled(crt *x509.Certificate, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.registered.settled(crt, now, c.settle)
}

func (c *current) holds(crt *x509.Certificate) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.registered.holds(crt)
}

// unsigned reports whether no known client verifies by a CA.
func (c *current) unsigned() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.registered.clients
}

// replace replaces the served values. It announces the change after the new bundle can be read, and only if the
// bundle or a path key is new.
func (c *current) replace(next served) {
	old := c.served.Load()
	if old != nil && sameBundle(old.bundle, next.bundle) && slices.EqualFunc(old.pathKeys, next.pathKeys, bytes.Equal) {
		next.changed = old.changed
		c.served.Store(&next)
		return
	}
	next.changed = make(chan struct{})
	c.served.Store(&next)
	if old != nil {
		close(old.changed)
	}
}

// serves reports whether the served certificate and bundle already equal those of next.
func (c *current) serves(next served) bool {
	now := c.served.Load()
	return now != nil && sameBundle(now.bundle, next.bundle) &&
		slices.EqualFunc(now.cert.Certificate, next.cert.Certificate, bytes.Equal)
}

func sameBundle(a, b []*x509.Certificate) bool {
	return slices.EqualFunc(a, b, (*x509.Certificate).Equal)
}

// poll calls refresh at every tick until ctx ends, and when it is kicked. It compares the wall clock at short ticks
// instead of using a timer for the moment of renewal, because the monotonic clock of timers stops while a machine is
// suspended. poll logs an outage when it begins and when it ends.
func (c *current) poll(ctx context.Context, every time.Duration, refresh func(context.Context) error) {
	logger := klog.FromContext(ctx)
	ticker := c.clock.NewTicker(every)
	defer ticker.Stop()
	for failing := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		case <-c.kick:
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
