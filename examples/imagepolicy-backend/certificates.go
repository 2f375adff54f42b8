package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// validity is the validity of the certificates.
const validity = 365 * 24 * time.Hour

// kubeconfig is a kubeconfig with paths that are relative to its folder.
const kubeconfig = `apiVersion: v1
kind: Config
current-context: backend
clusters:
- name: backend
  cluster:
    server: %q
    certificate-authority: ca.crt
users:
- name: postern
  user:
    client-certificate: client.crt
    client-key: client.key
contexts:
- name: backend
  context: {cluster: backend, user: postern}
`

// makeCertificates writes a CA, a certificate of the server for the host, a certificate of the client, and the client's
// kubeconfig. The key of the CA is not stored: to renew the certificates, make all of them again.
func makeCertificates(dir, address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	ca := template("image policy CA")
	ca.IsCA, ca.BasicConstraintsValid, ca.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	if err != nil {
		return err
	}
	server := template("image policy backend")
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	if ip := net.ParseIP(host); ip != nil {
		server.IPAddresses = []net.IP{ip}
	} else {
		server.DNSNames = []string{host}
	}
	client := template("postern")
	client.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}

	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := write(filepath.Join(dir, "ca.crt"), "CERTIFICATE", der); err != nil {
		return err
	}
	for name, leaf := range map[string]*x509.Certificate{"server": server, "client": client} {
		if err := issue(filepath.Join(dir, name), leaf, ca, key); err != nil {
			return err
		}
	}
	text := fmt.Sprintf(kubeconfig, "https://"+address+"/review")
	return os.WriteFile(filepath.Join(dir, "kubeconfig"), []byte(text), 0o600)
}

func template(name string) *x509.Certificate {
	// CreateCertificate generates the serial number.
	return &x509.Certificate{
		Subject:   pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(validity),
		KeyUsage: x509.KeyUsageDigitalSignature,
	}
}

// issue writes a certificate that the CA signs to base.crt, and its key to base.key.
func issue(base string, leaf, ca *x509.Certificate, caKey *ecdsa.PrivateKey) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), caKey)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := write(base+".key", "PRIVATE KEY", private); err != nil {
		return err
	}
	return write(base+".crt", "CERTIFICATE", der)
}

func write(file, kind string, der []byte) error {
	var text strings.Builder
	if err := pem.Encode(&text, &pem.Block{Type: kind, Bytes: der}); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text.String()), 0o600)
}
