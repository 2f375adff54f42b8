package certs

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// backdate is how much earlier than now certificates become valid, for clients whose clock is behind ours.
const backdate = 5 * time.Minute

// CA is a certificate authority: the bundle that it publishes, and the certificate and key that sign. These are
// separate things, because while a CA is being replaced the bundle holds more than the one that signs.
type CA struct {
	bundle []byte
	cert   *x509.Certificate
	key    crypto.Signer
	origin string // Where cert was read from, for errors.
}

// entry is a piece of PEM and the name by which errors speak of it.
type entry struct {
	name string
	data []byte
}

// newCA makes a CA that nobody knows yet.
func newCA(now time.Time, validity time.Duration) (*CA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating the key of the CA: %w", err)
	}
	return selfSign(key, now.Add(-backdate), now.Add(validity))
}

// selfSign makes the CA of a key.
func selfSign(key crypto.Signer, notBefore, notAfter time.Time) (*CA, error) {
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
	return &CA{bundle: encode(crt), cert: crt, key: key, origin: "the new CA"}, nil
}

// parseCA puts together what a store holds. The signer is the first certificate of signers that the key belongs
// to; signers may be the bundle itself.
func parseCA(bundle, signers, key entry) (*CA, error) {
	published, err := parseCerts(bundle)
	if err != nil {
		return nil, err
	}
	candidates, err := parseCerts(signers)
	if err != nil {
		return nil, err
	}
	signer, err := parseKey(key)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(candidates, func(c *x509.Certificate) bool { return belongs(signer, c) })
	if i < 0 {
		return nil, fmt.Errorf("%s: the key does not match the certificate in %s", key.name, signers.name)
	}
	crt := candidates[i]
	if !slices.ContainsFunc(published, crt.Equal) {
		return nil, fmt.Errorf("%s: the certificate that signs is not in the bundle %s", signers.name, bundle.name)
	}
	if !crt.BasicConstraintsValid || !crt.IsCA || crt.KeyUsage&x509.KeyUsageCertSign == 0 {
		return nil, fmt.Errorf("%s: the certificate is not one of a CA that may sign certificates", signers.name)
	}
	return &CA{bundle: bundle.data, cert: crt, key: signer, origin: signers.name}, nil
}

// valid returns an error if the CA has expired. One that is not valid yet is let pass: then it is more likely
// our clock that is wrong, and it is the client's clock that counts.
func (ca *CA) valid(now time.Time) error {
	if !now.Before(ca.cert.NotAfter) {
		return fmt.Errorf("%s: the certificate of the CA expired at %s", ca.origin, ca.cert.NotAfter.Format(time.RFC3339))
	}
	return nil
}

// issue signs a serving certificate with a key of its own. It ends with the CA at the latest, because no client
// would accept it any longer.
func (ca *CA) issue(o *Options, now time.Time) (*tls.Certificate, error) {
	notAfter := now.Add(o.Validity)
	if notAfter.After(ca.cert.NotAfter) {
		notAfter = ca.cert.NotAfter
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
	leaf, err := sign(template, ca.cert, key.Public(), ca.key)
	if err != nil {
		return nil, fmt.Errorf("signing the serving certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}, nil
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

// parseCerts wants certificates and nothing but certificates. What it reads is published: a key that got in
// by mistake must not be, and half a block is a file that somebody is still writing.
func parseCerts(e entry) ([]*x509.Certificate, error) {
	if len(e.data) == 0 {
		return nil, fmt.Errorf("%s: missing or empty", e.name)
	}
	var certs []*x509.Certificate
	for block, rest := pem.Decode(e.data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != cert.CertificateBlockType {
			return nil, fmt.Errorf("%s: holds a PEM block %q, want certificates only", e.name, block.Type)
		}
		crt, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: parsing certificate %d: %w", e.name, len(certs)+1, err)
		}
		certs = append(certs, crt)
	}
	if blocks := bytes.Count(e.data, []byte("-----BEGIN ")); len(certs) == 0 || blocks != len(certs) {
		return nil, fmt.Errorf("%s: %d of %d PEM blocks can be decoded", e.name, len(certs), blocks)
	}
	return certs, nil
}

func parseKey(e entry) (crypto.Signer, error) {
	if len(e.data) == 0 {
		return nil, fmt.Errorf("%s: missing or empty", e.name)
	}
	key, err := keyutil.ParsePrivateKeyPEM(e.data)
	if err != nil {
		return nil, fmt.Errorf("%s: parsing the key: %w", e.name, err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%s: a key of type %T cannot sign", e.name, key)
	}
	return signer, nil
}

// belongs says whether the certificate is one of the key.
func belongs(key crypto.Signer, crt *x509.Certificate) bool {
	pub, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	return ok && pub.Equal(crt.PublicKey)
}

func encode(crt *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: crt.Raw})
}
