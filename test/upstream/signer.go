package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

// signerLife is longer than any run. kube-controller-manager issues no certificate that outlives its CA.
const signerLife = 24 * time.Hour

// signer is a CA. kube-controller-manager signs the certificates of approved CertificateSigningRequests with it, and
// kube-apiserver accepts these certificates from clients.
type signer struct{ certificate, key string }

// newSigner creates a CA and writes its files into the folder.
func newSigner(dir string) (signer, error) {
	s := signer{filepath.Join(dir, "signer.crt"), filepath.Join(dir, "signer.key")}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return s, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "signer"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(signerLife),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return s, err
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return s, err
	}
	return s, errors.Join(
		os.WriteFile(s.certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}), 0o600),
		os.WriteFile(s.key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}), 0o600))
}

func (s signer) apiServerFlags() []string { return []string{"--client-ca-file=" + s.certificate} }

func (s signer) controllerManagerFlags() []string {
	return []string{"--cluster-signing-cert-file=" + s.certificate, "--cluster-signing-key-file=" + s.key}
}
