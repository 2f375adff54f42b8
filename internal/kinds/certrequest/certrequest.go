// Package certrequest parses the PKCS#10 request inside a CertificateSigningRequest.
package certrequest

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
)

// blockType is the only type of PEM block that spec.request may hold.
const blockType = "CERTIFICATE REQUEST"

// Parse parses the first PEM block of spec.request of a CertificateSigningRequest.
// Its errors have kube-apiserver's words, because denials quote them.
//
// Upstream: pkg/apis/certificates ParseCSR.
func Parse(pemBytes []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(pemBytes)
	if block == nil || block.Type != blockType {
		return nil, errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}
