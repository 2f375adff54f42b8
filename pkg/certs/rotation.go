package certs

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// clockSkew is the largest difference between the clocks of two replicas, or of a replica and the API server. Each
// clock may be five minutes off.
const clockSkew = 10 * time.Minute

// Rotation is the state of a CA rotation. CAs are identified by the beginning of their fingerprint.
type Rotation struct {
	// Signer is the CA that signs. NotAfter is when it expires.
	Signer   string
	NotAfter time.Time
	// Requested is true if a rotation was requested and no replica has started it yet.
	Requested bool
	// Next is the CA that will sign next, or empty.
	Next string
	// Leaving are the CAs that signed before, with the times at which they leave the bundle.
	Leaving map[string]time.Time
}

func (ca *CA) rotation() *Rotation {
	if ca == nil {
		return nil
	}
	r := &Rotation{Signer: shortName(ca.signer.cert), NotAfter: ca.signer.cert.NotAfter, Requested: ca.requested, Leaving: map[string]time.Time{}}
	if ca.next != nil {
		r.Next = shortName(ca.next.cert)
	}
	for _, l := range ca.leaving {
		r.Leaving[shortName(ca.find(l.Fingerprint))] = l.Until
	}
	return r
}

// step is one change of the stored CA.
type step struct {
	name    string
	message string
	ca      *CA
	logged  []any
}

// advance takes the next step of a rotation if it is due, and returns the CA that is stored then. Any replica may
// take the step. If it cannot be stored, the replica keeps serving with the present CA.
func (a *Authority) advance(ctx context.Context, ca *CA, now time.Time) (*CA, error) {
	s, err := a.nextStep(ca, now)
	if err != nil || s == nil {
		return ca, err
	}
	stored, err := a.store.Update(ctx, s.ca)
	if errors.Is(err, ErrChanged) {
		a.again() // Another replica stored a step first. Continue from that CA.
		return ca, nil
	}
	if err != nil {
		return ca, fmt.Errorf("replacing the CA: %w", err)
	}
	klog.FromContext(ctx).Info(s.message, s.logged...)
	a.options.Metrics.step(s.name)
	switch s.name {
	case "promoted":
		a.options.notify(corev1.EventTypeNormal, EventCARotated, fmt.Sprintf("The CA %s signs. The old CA leaves the webhook configurations at %s.",
			shortName(stored.signer.cert), now.Add(a.overlap()).UTC().Format(time.RFC3339)))
	case "superseded":
		a.options.notify(corev1.EventTypeWarning, EventCARotated, fmt.Sprintf("The CA expired. The CA %s signs.", shortName(stored.signer.cert)))
	}
	a.again()
	return stored, nil
}

// nextStep returns the next step, or nil if no step is due.
func (a *Authority) nextStep(ca *CA, now time.Time) (*step, error) {
	if claimed, err := a.claim(ca, now); err != nil || claimed != nil {
		return claimed, err
	}
	if kept := ca.retire(now); kept != ca {
		return &step{"retired", "An old CA leaves the bundle", kept, nil}, nil
	}
	if ca.signer.expired(now) && ca.next == nil {
		signer, err := newKeyPair(now, a.options.CAValidity)
		if err != nil {
			return nil, err
		}
		return &step{"superseded", "The CA expired, another one signs at once", ca.supersede(signer), []any{"ca", shortName(signer.cert)}}, nil
	}
	if ca.next != nil && !ca.next.early(now) {
		return a.promotion(ca, now)
	}
	if ca.next == nil && !ca.requested && now.Before(renewal(ca.signer.cert.NotBefore, ca.signer.cert.NotAfter)) {
		return nil, nil
	}
	next, err := newKeyPair(now, a.options.CAValidity)
	if err != nil {
		return nil, err
	}
	return &step{"begun", "A new CA joins the bundle", ca.begin(next), []any{"ca", shortName(next.cert), "requested", ca.requested}}, nil
}

// promotion is due once every client has held the next CA for a while, or if there is no client. It is overdue when
// the CA that signs has expired.
func (a *Authority) promotion(ca *CA, now time.Time) (*step, error) {
	if !a.settled(ca.next.cert, now) && !ca.signer.expired(now) {
		return nil, nil
	}
	promoted, err := ca.promote(now.Add(a.overlap()))
	if err != nil {
		return nil, err
	}
	return &step{"promoted", "The new CA signs", promoted, []any{"ca", shortName(ca.next.cert), "oldCALeaves", now.Add(a.overlap())}}, nil
}

// claim keeps the CA that signed this replica's certificate in the bundle while the certificate is served. It is for
// a CA that was replaced without a rotation: the Secret was deleted, or somebody stored another CA in it.
func (a *Authority) claim(ca *CA, now time.Time) (*step, error) {
	signed, served := a.signed, a.served.Load()
	if signed == nil || signed.cert.Equal(ca.signer.cert) || signed.expired(now) || !a.holds(signed.cert) {
		return nil, nil
	}
	if ca.next != nil && signed.cert.Equal(ca.next.cert) || ca.keeps(signed.cert, served.cert.Leaf.NotAfter) {
		return nil, nil
	}
	kept, err := ca.keep(signed, now.Add(a.overlap()))
	if err != nil {
		return nil, err
	}
	return &step{"kept", "A CA that was replaced stays in the bundle while it is in use", kept, []any{"ca", shortName(signed.cert), "until", now.Add(a.overlap())}}, nil
}

// overlap is how long a CA that no longer signs stays in the bundle. A replica that cannot read the store may serve a
// certificate of that CA for as long.
func (a *Authority) overlap() time.Duration {
	return a.options.Validity + min(clockSkew, a.options.Validity)
}

// renewal returns the time at which two thirds of a certificate's life are over. A CA that an earlier version made, or
// somebody else, may be shorter than backdate.
func renewal(notBefore, notAfter time.Time) time.Time {
	issued := notBefore.Add(backdate)
	if !issued.Before(notAfter) {
		issued = notBefore
	}
	return issued.Add(notAfter.Sub(issued) * 2 / 3)
}
