package admit

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
)

// csrPEMType is the only PEM block that a certificate signing request may come in.
const csrPEMType = "CERTIFICATE REQUEST"

// ParseCSR reads the certificate request in spec.request of a CertificateSigningRequest: the first PEM
// block of the bytes. Its errors have kube-apiserver's words, because denials quote them.
func ParseCSR(pemBytes []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(pemBytes)
	if block == nil || block.Type != csrPEMType {
		return nil, errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}
