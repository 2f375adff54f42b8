package certs

import (
	"context"
	"crypto/x509"
	"errors"
	"slices"
	"time"
)

// ErrNoCA is returned by Store.Load if no CA was created yet, or if the CA was deleted.
var ErrNoCA = errors.New("there is no CA")

// ErrChanged is returned by Store.Update if the stored CA is not the loaded one. Another process has taken a step;
// load again.
var ErrChanged = errors.New("the stored CA has changed")

// InvalidError is returned by Store.Load if the stored CA is not complete and valid.
type InvalidError struct {
	// Err names the invalid part.
	Err error

	version string
	// isEarly is true if the CA is complete, and not valid yet.
	isEarly bool
}

// Error implements error.
func (e *InvalidError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *InvalidError) Unwrap() error { return e.Err }

// Store keeps one CA for all replicas.
type Store interface {
	// Load reads the CA. The error is ErrNoCA if there is no CA, and an *InvalidError if the CA is incomplete or
	// invalid.
	Load(ctx context.Context) (*CA, error)

	// Create stores ca unless a CA is stored already, and returns the stored CA. If two processes create a CA at the
	// same time, both use the first one.
	Create(ctx context.Context, ca *CA) (*CA, error)

	// Update replaces the loaded CA, and returns the stored one. The error is ErrChanged if the stored CA is no
	// longer the loaded one.
	Update(ctx context.Context, ca *CA) (*CA, error)
}

// CA is the certificate authority that a Store keeps: the bundle that clients verify by, and the certificate and key
// that sign. While the CA is being replaced, the bundle holds more than the certificate that signs. It is replaced in
// three steps, and each step is one Update:
//
//  1. begin: a new CA with a key of its own joins the bundle. Nothing is signed with it.
//  2. promote: the new CA signs, because clients hold it. The old key is gone.
//  3. retire: the old CA leaves the bundle, because nothing that it signed can be in use.
//
// A CA is never changed: each step returns another one.
type CA struct {
	bundle  []*x509.Certificate
	signer  *keyPair
	next    *keyPair // Nil unless a CA is to be promoted.
	leaving []leaving

	// requested is true if a rotation was requested.
	requested bool
	// version is the store's version of the CA. Update compares it.
	version string
}

// leaving is a CA that no longer signs, but may have signed a certificate that is still in use.
type leaving struct {
	Fingerprint string    `json:"sha256"`
	Until       time.Time `json:"until"`
	// PathKey is kept because the private key that it was derived from is gone.
	PathKey []byte `json:"pathKey,omitempty"`
}

// newCA returns the CA of a key pair.
func newCA(p *keyPair) *CA {
	return &CA{bundle: []*x509.Certificate{p.cert}, signer: p}
}

func (ca *CA) clone() *CA {
	out := *ca
	out.bundle, out.leaving = slices.Clone(ca.bundle), slices.Clone(ca.leaving)
	return &out
}

// find returns the certificate in the bundle with that fingerprint, or nil.
func (ca *CA) find(name string) *x509.Certificate {
	for _, crt := range ca.bundle {
		if fingerprint(crt) == name {
			return crt
		}
	}
	return nil
}

func (ca *CA) publishes(crt *x509.Certificate) bool { return slices.ContainsFunc(ca.bundle, crt.Equal) }

// begin adds a CA that will sign later. It replaces the next CA, if there is one that is not valid yet.
func (ca *CA) begin(next *keyPair) *CA {
	out := ca.clone()
	if ca.next != nil {
		out.bundle = slices.DeleteFunc(out.bundle, ca.next.cert.Equal)
	}
	out.next, out.requested = next, false
	out.bundle = append(out.bundle, next.cert)
	return out
}

// promote makes the next CA sign. The previous signer stays in the bundle for the given time.
func (ca *CA) promote(until time.Time) (*CA, error) {
	out, err := ca.keep(ca.signer, until)
	if err != nil {
		return nil, err
	}
	out.signer, out.next = ca.next, nil
	return out, nil
}

// supersede makes another CA sign at once. It is for an expired CA: no client trusts the certificates of that CA.
func (ca *CA) supersede(signer *keyPair) *CA {
	out := ca.clone()
	out.bundle = append(out.bundle, signer.cert)
	out.signer, out.next, out.requested = signer, nil, false
	return out
}

// keep keeps a CA that no longer signs in the bundle, or adds it again, at least for the given time.
func (ca *CA) keep(p *keyPair, until time.Time) (*CA, error) {
	pathKey, err := p.pathKey()
	if err != nil {
		return nil, err
	}
	out := ca.clone()
	if !out.publishes(p.cert) {
		out.bundle = append(out.bundle, p.cert)
	}
	name := fingerprint(p.cert)
	for i := range out.leaving {
		if l := &out.leaving[i]; l.Fingerprint == name {
			if l.Until.Before(until) {
				l.Until = until.UTC()
			}
			return out, nil
		}
	}
	out.leaving = append(out.leaving, leaving{Fingerprint: name, Until: until.UTC(), PathKey: pathKey})
	return out, nil
}

// keeps reports whether a CA that no longer signs stays in the bundle until the given time.
func (ca *CA) keeps(crt *x509.Certificate, until time.Time) bool {
	name := fingerprint(crt)
	i := slices.IndexFunc(ca.leaving, func(l leaving) bool { return l.Fingerprint == name })
	if i < 0 {
		// A CA that somebody added to the bundle by hand stays.
		return ca.publishes(crt)
	}
	return !ca.leaving[i].Until.Before(until)
}

// retire removes the CAs that have left or have expired. It returns the CA itself if there is nothing to remove.
func (ca *CA) retire(now time.Time) *CA {
	over := map[string]bool{}
	for _, l := range ca.leaving {
		over[l.Fingerprint] = !now.Before(l.Until)
	}
	gone := func(crt *x509.Certificate) bool {
		if crt.Equal(ca.signer.cert) || ca.next != nil && crt.Equal(ca.next.cert) {
			return false
		}
		return over[fingerprint(crt)] || now.After(crt.NotAfter.Add(clockSkew))
	}
	if !slices.ContainsFunc(ca.bundle, gone) {
		return ca
	}
	out := ca.clone()
	out.bundle = slices.DeleteFunc(out.bundle, gone)
	out.leaving = slices.DeleteFunc(out.leaving, func(l leaving) bool { return out.find(l.Fingerprint) == nil })
	return out
}
