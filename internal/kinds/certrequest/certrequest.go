// Package certrequest parses the PKCS#10 request inside a CertificateSigningRequest.
package certrequest

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/postern-dev/postern/internal/footprint"
)

// blockType is the only type of PEM block that spec.request may hold.
const blockType = "CERTIFICATE REQUEST"

// memoryPerByte is how much memory parsing takes at most for each byte of a PEM text. An attribute of two bytes takes 72, in a list
// that grows while it is read. TestMemory measures 55.
const memoryPerByte = 64

// Memory returns how many bytes of memory Parse takes at most.
func Memory(pemBytes []byte) int64 {
	if len(pemBytes) > footprint.StoredBytes {
		return 0 // Parse does not look at it.
	}
	return memoryPerByte * int64(len(pemBytes))
}

// Parse parses the first PEM block of spec.request of a CertificateSigningRequest.
// Its errors have kube-apiserver's words, because denials quote them.
//
// Upstream: pkg/apis/certificates ParseCSR.
//
// A request that is too large to be stored is an error.
func Parse(pemBytes []byte) (*x509.CertificateRequest, error) {
	if len(pemBytes) > footprint.StoredBytes {
		return nil, fmt.Errorf("the request has %d bytes, more than the %d that can be stored", len(pemBytes), footprint.StoredBytes)
	}
	block, _ := pem.Decode(pemBytes)
	if block == nil || block.Type != blockType {
		return nil, errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}
