package certs

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"slices"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// entry is a part of a stored CA, and its name in errors.
type entry struct {
	name string
	data []byte
}

// entries are the parts of a CA. The last three exist only while the CA is being replaced.
type entries struct {
	bundle, signers, key entry
	nexts, nextKey       entry
	leaving              entry
}

// parseCA parses the stored parts of a CA. An invalid part of a rotation only ends the rotation, because the CA that
// signs is still valid.
func parseCA(e entries) (*CA, error) {
	bundle, err := parseCerts(e.bundle)
	if err != nil {
		return nil, err
	}
	signer, err := parseKeyPair(e.signers, e.key, e.bundle.name, bundle)
	if err != nil {
		return nil, err
	}
	ca := &CA{bundle: bundle, signer: signer}
	if len(e.nextKey.data) > 0 {
		if ca.next, err = parseKeyPair(e.nexts, e.nextKey, e.bundle.name, bundle); err != nil {
			ca.next = nil
		}
	}
	if len(e.leaving.data) > 0 {
		if err := json.Unmarshal(e.leaving.data, &ca.leaving); err != nil {
			ca.leaving = nil
		}
	}
	ca.leaving = slices.DeleteFunc(ca.leaving, func(l leaving) bool { return ca.find(l.Fingerprint) == nil })
	return ca, nil
}

// parseKeyPair returns the key and the first certificate of signers that belongs to it. It must be a CA of the bundle.
func parseKeyPair(signers, key entry, bundleName string, bundle []*x509.Certificate) (*keyPair, error) {
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
	if !slices.ContainsFunc(bundle, crt.Equal) {
		return nil, fmt.Errorf("%s: the certificate that signs is not in the bundle %s", signers.name, bundleName)
	}
	if !crt.BasicConstraintsValid || !crt.IsCA || crt.KeyUsage&x509.KeyUsageCertSign == 0 {
		return nil, fmt.Errorf("%s: the certificate is not one of a CA that may sign certificates", signers.name)
	}
	return &keyPair{cert: crt, key: signer}, nil
}

// parseCerts returns an error for anything but certificates. The certificates are published, so a key that was added
// by mistake must be refused. Half a block is a file that is still being written.
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
