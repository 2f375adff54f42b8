package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"

	"k8s.io/client-go/util/cert"
)

const (
	// backdate is the time by which the start of a certificate's validity precedes its signing. A replica signs by the time
	// of one API server, and the clock of another one may be far behind. An early start costs nothing.
	backdate = 24 * time.Hour

	// pathKeyLabel separates path keys from other keys that may be derived from the key of a CA.
	pathKeyLabel = "postern.dev/path-key"
)

// keyPair is the certificate of a CA and its private key.
type keyPair struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// newKeyPair makes a CA that no client holds yet.
func newKeyPair(now time.Time, validity time.Duration) (*keyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating the key of the CA: %w", err)
	}
	return selfSign(key, now.Add(-backdate), now.Add(validity))
}

// selfSign makes a self-signed CA for a key.
func selfSign(key crypto.Signer, notBefore, notAfter time.Time) (*keyPair, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "postern-ca"},
		NotBefore:             notBefore,
		NotAfter:              notAfter,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true, // It signs servers, never another CA.
	}
	crt, err := sign(template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("signing the certificate of the CA: %w", err)
	}
	return &keyPair{cert: crt, key: key}, nil
}

// expired reports whether the CA has expired, so that no client accepts the certificates it signed.
func (p *keyPair) expired(now time.Time) bool { return !now.Before(p.cert.NotAfter) }

// early reports whether the CA is not valid yet, so that no client accepts the certificates it signed. A process whose clock
// was ahead made the CA, or the clock was set back.
func (p *keyPair) early(now time.Time) bool { return now.Before(p.cert.NotBefore) }

// isValid reports whether clients can accept the certificates that the CA signed.
func (p *keyPair) isValid(now time.Time) bool { return !p.expired(now) && !p.early(now) }

// validity returns nil for a CA that isValid, or the reason why it is not.
func (p *keyPair) validity(now time.Time) error {
	switch {
	case p.expired(now):
		return fmt.Errorf("the CA %s expired at %s", shortName(p.cert), p.cert.NotAfter.Format(time.RFC3339))
	case p.early(now):
		return fmt.Errorf("the CA %s is not valid before %s", shortName(p.cert), p.cert.NotBefore.Format(time.RFC3339))
	}
	return nil
}

// issue signs a serving certificate with its own new key. The certificate expires with the CA at the latest, because
// no client would accept it after that.
func (p *keyPair) issue(o *Options, now time.Time) (*tls.Certificate, error) {
	notAfter := now.Add(o.Validity)
	if notAfter.After(p.cert.NotAfter) {
		notAfter = p.cert.NotAfter
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating the serving key: %w", err)
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "postern"},
		DNSNames:              o.DNSNames,
		IPAddresses:           o.IPs,
		NotBefore:             now.Add(-backdate),
		NotAfter:              notAfter,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	leaf, err := sign(template, p.cert, key.Public(), p.key)
	if err != nil {
		return nil, fmt.Errorf("signing the serving certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}, nil
}

// pathKey derives the secret of PathKeys from the private key. The secret does not reveal the private key, and every
// replica derives the same secret.
func (p *keyPair) pathKey() ([]byte, error) {
	secret, err := x509.MarshalPKCS8PrivateKey(p.key)
	if err != nil {
		return nil, fmt.Errorf("encoding the key of the CA: %w", err)
	}
	key, err := hkdf.Key(sha256.New, secret, nil, pathKeyLabel, sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("deriving the path key: %w", err)
	}
	return key, nil
}

// sign gives the certificate a random serial number of 128 bits: replicas sign independently of each other, and
// no two certificates of one CA may share a number.
func sign(template, parent *x509.Certificate, pub crypto.PublicKey, key crypto.Signer) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 128))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, parent, pub, key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// belongs reports whether the certificate contains the public key of the private key.
func belongs(key crypto.Signer, crt *x509.Certificate) bool {
	pub, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	return ok && pub.Equal(crt.PublicKey)
}

// fingerprint identifies a certificate in logs, in messages and in the store.
func fingerprint(crt *x509.Certificate) string {
	sum := sha256.Sum256(crt.Raw)
	return hex.EncodeToString(sum[:])
}

// shortName is a prefix of the fingerprint, long enough for people to distinguish CAs.
func shortName(crt *x509.Certificate) string { return fingerprint(crt)[:12] }

func encode(crts ...*x509.Certificate) []byte {
	var out []byte
	for _, crt := range crts {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: crt.Raw})...)
	}
	return out
}
