package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// fileInterval is how often the files are read again.
const fileInterval = 5 * time.Second

// Files is the Source that serves a certificate from files which somebody else renews: cert-manager, or a
// Secret mounted into the pod. It reads what is in them instead of watching them, so it does not matter whether
// they are written in place, renamed over or, as Kubernetes does, swapped by a symbolic link.
type Files struct {
	current
	certFile, keyFile, bundleFile string
}

// NewFiles reads the files. Without a bundle file, clients verify by what their system trusts. A certificate
// that has expired is no error here, because the next one may be written at any time; it is not ready.
func NewFiles(ctx context.Context, certFile, keyFile, bundleFile string, c clock.WithTicker) (*Files, error) {
	f := &Files{current: current{clock: c}, certFile: certFile, keyFile: keyFile, bundleFile: bundleFile}
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

// refresh takes all the files or none. A pair that is half written, or that the bundle does not vouch for yet,
// is one that somebody is still writing.
func (f *Files) refresh(ctx context.Context) error {
	cert, err := f.pair()
	if err != nil {
		return err
	}
	bundle, err := f.bundle(cert)
	if err != nil {
		return err
	}
	if f.serves(cert, bundle) {
		return nil
	}
	f.replace(cert, bundle)
	klog.FromContext(ctx).Info("Serving certificate loaded", "certFile", f.certFile, "notAfter", cert.Leaf.NotAfter)
	return nil
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

// bundle reads the bundle and has it verify the certificate, as clients will: they would refuse a server whose
// certificate and bundle come from two different CAs.
func (f *Files) bundle(cert *tls.Certificate) ([]byte, error) {
	if f.bundleFile == "" {
		return nil, nil
	}
	data, err := os.ReadFile(f.bundleFile)
	if err != nil {
		return nil, fmt.Errorf("reading the CA bundle: %w", err)
	}
	certs, err := parseCerts(entry{name: f.bundleFile, data: data})
	if err != nil {
		return nil, err
	}
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	for _, c := range certs {
		roots.AddCert(c)
	}
	for _, der := range cert.Certificate[1:] {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("%s: parsing the chain: %w", f.certFile, err)
		}
		intermediates.AddCert(c)
	}
	_, err = cert.Leaf.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: intermediates, CurrentTime: within(cert.Leaf, f.clock.Now()),
	})
	if err != nil {
		return nil, fmt.Errorf("verifying %s by %s: %w", f.certFile, f.bundleFile, err)
	}
	return data, nil
}

// within is the moment nearest to now at which the certificate is valid. Whether it is valid now is Ready's to
// say.
func within(crt *x509.Certificate, now time.Time) time.Time {
	if now.Before(crt.NotBefore) {
		return crt.NotBefore
	}
	if now.After(crt.NotAfter) {
		return crt.NotAfter
	}
	return now
}
