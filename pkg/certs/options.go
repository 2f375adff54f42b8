package certs

import (
	"context"
	"errors"
	"net"
	"time"

	"k8s.io/utils/clock"
)

// Defaults of Options.
const (
	DefaultValidity   = 7 * 24 * time.Hour
	DefaultCAValidity = 365 * 24 * time.Hour
	DefaultSettle     = 30 * time.Second
)

const (
	// storeInterval is how often the store is read and the clock is checked. The interval is shorter if certificates
	// last only minutes.
	storeInterval    = 10 * time.Second
	minStoreInterval = 200 * time.Millisecond

	// storeTimeout bounds a call of the store, so that a hanging store does not stop the renewal.
	storeTimeout = 15 * time.Second

	// maxKnown bounds the number of remembered CAs.
	maxKnown = 4
)

// Options configure an Authority and its certificates.
type Options struct {
	// DNSNames and IPs are the addresses that clients use for the server. At least one is required.
	DNSNames []string
	IPs      []net.IP

	// Validity is how long a serving certificate lasts.
	Validity time.Duration

	// CAValidity is how long a CA that this process creates is valid. The CA is replaced after two thirds of that
	// time.
	CAValidity time.Duration

	// Settle is how long clients may take to learn of a registered bundle.
	Settle time.Duration

	// Registered returns the bundles by which clients verify the server at the start, as for Held. If it is not set,
	// the first call of Held provides them.
	Registered func(context.Context) ([][]byte, error)

	// Clock defaults to the real clock.
	Clock clock.WithTicker

	// Metrics may be nil.
	Metrics *Metrics

	// Notify, if not nil, is called with what an administrator should see: the type (corev1.EventTypeNormal or
	// corev1.EventTypeWarning), the reason and the message of an Event. It must not block.
	Notify func(eventType, reason, message string)
}

// The reasons of the Events that an Authority reports.
const (
	EventCARotated  = "CARotated"
	EventCARepaired = "CARepaired"
)

func (o *Options) notify(eventType, reason, message string) {
	if o.Notify != nil {
		o.Notify(eventType, reason, message)
	}
}

// interval is short enough that every replica loads a stored CA before another replica signs with it.
func (o *Options) interval() time.Duration {
	return max(minStoreInterval, min(storeInterval, o.Validity/10, o.Settle/3))
}

// complete checks the options and sets the defaults.
func (o *Options) complete() error {
	if len(o.DNSNames) == 0 && len(o.IPs) == 0 {
		return errors.New("a serving certificate needs a DNS name or an IP address")
	}
	if o.Validity < 0 || o.CAValidity < 0 || o.Settle < 0 {
		return errors.New("the validity of a certificate must not be negative")
	}
	for _, d := range []struct {
		value    *time.Duration
		fallback time.Duration
	}{{&o.Validity, DefaultValidity}, {&o.CAValidity, DefaultCAValidity}, {&o.Settle, DefaultSettle}} {
		if *d.value == 0 {
			*d.value = d.fallback
		}
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return nil
}
