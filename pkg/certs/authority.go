package certs

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	defaultValidity   = 7 * 24 * time.Hour
	defaultCAValidity = 10 * 365 * 24 * time.Hour

	// storeInterval is how often the store is read again and the clock looked at.
	storeInterval = time.Minute

	// storeTimeout keeps a store that hangs from stopping the renewal.
	storeTimeout = 15 * time.Second
)

// Options are what an Authority's certificates are like.
type Options struct {
	// DNSNames and IPs are what clients call the server. There must be one at least.
	DNSNames []string
	IPs      []net.IP

	// Validity is how long a serving certificate lasts: seven days where it is not set.
	Validity time.Duration

	// CAValidity is how long the CA lasts if this process makes it: ten years where it is not set.
	CAValidity time.Duration

	// Clock is the real one where it is not set.
	Clock clock.WithTicker
}

// Authority is the Source that signs its own serving certificate with the CA of a Store, and renews it at two
// thirds of its life, or at once when another CA signs.
type Authority struct {
	current
	store   Store
	options Options
	signer  *x509.Certificate // The one that signed what is served.
}

// NewAuthority loads the CA, or makes it where there is none, and signs the first certificate.
func NewAuthority(ctx context.Context, store Store, o Options) (*Authority, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	a := &Authority{current: current{clock: o.Clock}, store: store, options: o}
	ca, err := store.Load(ctx)
	if errors.Is(err, ErrNoCA) {
		ca, err = a.create(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("loading the CA: %w", err)
	}
	if err := a.use(ctx, ca); err != nil {
		return nil, fmt.Errorf("signing with the CA: %w", err)
	}
	return a, nil
}

// Run implements Source.
func (a *Authority) Run(ctx context.Context) error {
	// A certificate that lasts minutes, as in a trial, has to be looked at more often.
	every := max(time.Second, min(storeInterval, a.options.Validity/10))
	a.poll(ctx, every, a.refresh)
	return nil
}

// refresh renews only with a CA that the store holds at this moment. Were one signed with a CA remembered from
// earlier, nobody could tell when the last certificate of an old CA is gone.
func (a *Authority) refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	ca, err := a.store.Load(ctx)
	if err != nil {
		return fmt.Errorf("loading the CA: %w", err)
	}
	return a.use(ctx, ca)
}

func (a *Authority) create(ctx context.Context) (*CA, error) {
	made, err := newCA(a.clock.Now(), a.options.CAValidity)
	if err != nil {
		return nil, err
	}
	kept, err := a.store.Create(ctx, made)
	if err == nil && kept.cert.Equal(made.cert) {
		klog.FromContext(ctx).Info("CA created", "notAfter", kept.cert.NotAfter)
	}
	return kept, err
}

// use publishes the bundle of the CA, and has it sign if there is a reason to.
func (a *Authority) use(ctx context.Context, ca *CA) error {
	now := a.clock.Now()
	if err := ca.valid(now); err != nil {
		return err
	}
	reason := a.due(ca, now)
	if reason == "" {
		a.replace(a.served.Load().cert, ca.bundle)
		return nil
	}
	cert, err := ca.issue(&a.options, now)
	if err != nil {
		return err
	}
	a.replace(cert, ca.bundle)
	a.signer = ca.cert
	klog.FromContext(ctx).Info("Serving certificate signed", "reason", reason, "notAfter", cert.Leaf.NotAfter)
	return nil
}

// due returns why the certificate is to be signed anew, or nothing. One that ends with the CA is not: the next
// would end at the same moment.
func (a *Authority) due(ca *CA, now time.Time) string {
	if a.signer == nil {
		return "there was none"
	}
	if !a.signer.Equal(ca.cert) {
		return "another CA signs"
	}
	leaf := a.served.Load().cert.Leaf
	if now.Before(leaf.NotBefore) {
		return "the clock was set back"
	}
	issued := leaf.NotBefore.Add(backdate)
	renewal := issued.Add(leaf.NotAfter.Sub(issued) * 2 / 3)
	if !now.Before(renewal) && leaf.NotAfter.Before(ca.cert.NotAfter) {
		return "two thirds of its life are over"
	}
	return ""
}

// complete checks the options and fills in those that are not set.
func (o *Options) complete() error {
	if len(o.DNSNames) == 0 && len(o.IPs) == 0 {
		return errors.New("a serving certificate needs a DNS name or an IP address")
	}
	if o.Validity < 0 || o.CAValidity < 0 {
		return errors.New("the validity of a certificate must not be negative")
	}
	if o.Validity == 0 {
		o.Validity = defaultValidity
	}
	if o.CAValidity == 0 {
		o.CAValidity = defaultCAValidity
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return nil
}
