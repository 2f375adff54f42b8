package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"slices"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// fileInterval is how often the files are read again.
const fileInterval = 5 * time.Second

// Files is the Source that serves a certificate from files that are renewed elsewhere: by cert-manager, or from a
// Secret mounted into the pod. It reads the content of the files instead of watching them. The files may therefore be
// written in place, replaced by a rename or, as Kubernetes does, switched by a symbolic link.
type Files struct {
	current
	certFile, keyFile, bundleFile string
}

// NewFiles reads the files. Without a bundle file, clients verify by the CAs of their system. An expired certificate
// is no error, because the next one may be written at any time. Until then the Source is not ready.
func NewFiles(ctx context.Context, certFile, keyFile, bundleFile string, c clock.WithTicker) (*Files, error) {
	f := &Files{current: newCurrent(c, DefaultSettle), certFile: certFile, keyFile: keyFile, bundleFile: bundleFile}
	if err := f.refresh(ctx); err != nil {
		return nil, err
	}
	return f, nil
}

// Run implements Source.
func (f *Files) Run(ctx context.Context) error {
	f.poll(ctx, fileInterval, f.refresh)
	return nil
}

// refresh uses all the files or none. An incomplete pair, or a pair that the bundle does not verify yet, is still
// being written.
func (f *Files) refresh(ctx context.Context) error {
	cert, err := f.pair()
	if err != nil {
		return err
	}
	bundle, anchor, err := f.bundle(cert)
	if err != nil {
		return err
	}
	next := served{cert: cert, bundle: bundle, anchor: anchor}
	if f.tooEarly(next) {
		f.replace(f.keepServing(next))
		return nil
	}
	if f.serves(next) {
		return nil
	}
	f.replace(next)
	klog.FromContext(ctx).Info("Serving certificate loaded", "certFile", f.certFile, "notAfter", cert.Leaf.NotAfter)
	return nil
}

// tooEarly reports whether clients do not hold the CA of the next certificate yet, but hold the CA of the present
// one.
func (f *Files) tooEarly(next served) bool {
	old, now := f.served.Load(), f.clock.Now()
	return old != nil && next.anchor != nil && old.anchor != nil && !next.anchor.Equal(old.anchor) &&
		!f.trusts(next.anchor, now) && f.holds(old.anchor) && now.Before(old.cert.Leaf.NotAfter)
}

// keepServing returns the present certificate with the bundle of the next one.
func (f *Files) keepServing(next served) served {
	old := f.served.Load()
	next.cert, next.anchor = old.cert, old.anchor
	if !slices.ContainsFunc(next.bundle, old.anchor.Equal) {
		next.bundle = append(slices.Clone(next.bundle), old.anchor)
	}
	return next
}

func (f *Files) pair() (*tls.Certificate, error) {
	certPEM, err := os.ReadFile(f.certFile)
	if err != nil {
		return nil, fmt.Errorf("reading the serving certificate: %w", err)
	}
	keyPEM, err := os.ReadFile(f.keyFile)
	if err != nil {
		return nil, fmt.Errorf("reading the serving key: %w", err)
	}
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("pairing %s with %s: %w", f.certFile, f.keyFile, err)
	}
	return &cert, nil
}

// bundle reads the bundle and verifies the certificate with it, as clients will: they refuse a server whose
// certificate is signed by a CA outside the bundle. The anchor is the certificate in the bundle that verifies the
// serving certificate.
func (f *Files) bundle(cert *tls.Certificate) (bundle []*x509.Certificate, anchor *x509.Certificate, err error) {
	if f.bundleFile == "" {
		return nil, nil, nil
	}
	data, err := os.ReadFile(f.bundleFile)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the CA bundle: %w", err)
	}
	bundle, err = parseCerts(entry{name: f.bundleFile, data: data})
	if err != nil {
		return nil, nil, err
	}
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	for _, c := range bundle {
		roots.AddCert(c)
	}
	for _, der := range cert.Certificate[1:] {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: parsing the chain: %w", f.certFile, err)
		}
		intermediates.AddCert(c)
	}
	chains, err := cert.Leaf.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: intermediates, CurrentTime: within(cert.Leaf, f.clock.Now()),
	})
	if err != nil {
		return nil, nil, fmt.Errorf("verifying %s by %s: %w", f.certFile, f.bundleFile, err)
	}
	return bundle, chains[0][len(chains[0])-1], nil
}

// within returns the moment nearest to now at which the certificate is valid. Ready checks whether the certificate is
// valid now.
func within(crt *x509.Certificate, now time.Time) time.Time {
	if now.Before(crt.NotBefore) {
		return crt.NotBefore
	}
	if now.After(crt.NotAfter) {
		return crt.NotAfter
	}
	return now
}
