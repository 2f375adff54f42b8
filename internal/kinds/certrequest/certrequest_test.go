package certrequest_test

import (
	"bytes"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/heap"
	"github.com/postern-dev/postern/internal/kinds/certrequest"
	"github.com/postern-dev/postern/internal/ring"
)

// csrPEM is a request for the subject CN=pooh, O=honey.
const csrPEM = `-----BEGIN CERTIFICATE REQUEST-----
MIHbMIGBAgEAMB8xDjAMBgNVBAoTBWhvbmV5MQ0wCwYDVQQDEwRwb29oMFkwEwYH
KoZIzj0CAQYIKoZIzj0DAQcDQgAEumiwYNTzoxNyP90LCJ64uUj7qsAlnzPEf1Zq
vTg7OhGlWc08cdrTVMHDFJm1MHmSgvSJ3AlbxGh3y9ZCwST6RaAAMAoGCCqGSM49
BAMCA0kAMEYCIQCWQ/DmgfZIKgkVi89BRkd6gBQm4Kx4vJ9rX59A6mwxOAIhAM6P
l+pL04jR65Z8von8YvcpptjX6ynR+iZR20hLTtVL
-----END CERTIFICATE REQUEST-----
`

func TestParse(t *testing.T) {
	got, err := certrequest.Parse([]byte("what stands before is not looked at\n" + csrPEM))
	if err != nil || got.Subject.String() != "CN=pooh,O=honey" {
		t.Errorf("Got %v, %v; want the request of pooh", got, err)
	}
	const wrongBlock = "PEM block type must be CERTIFICATE REQUEST"
	for name, tc := range map[string]struct{ pem, want string }{
		"nothing":           {"", wrongBlock},
		"no PEM":            {"pooh", wrongBlock},
		"another block":     {strings.ReplaceAll(csrPEM, "CERTIFICATE REQUEST", "CERTIFICATE"), wrongBlock},
		"the older name":    {strings.ReplaceAll(csrPEM, "CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST"), wrongBlock},
		"a second block":    {strings.ReplaceAll(csrPEM, "CERTIFICATE REQUEST", "CERTIFICATE") + csrPEM, wrongBlock},
		"no request inside": {"-----BEGIN CERTIFICATE REQUEST-----\nMAA=\n-----END CERTIFICATE REQUEST-----\n", "asn1: syntax error: sequence truncated"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := certrequest.Parse([]byte(tc.pem)); err == nil || err.Error() != tc.want {
				t.Errorf("Got error %v, want %q", err, tc.want)
			}
		})
	}
}

// TestMemory parses a request with many attributes, which are as small as possible.
func TestMemory(t *testing.T) {
	ring.Second(t, "it measures memory, which takes a quiet machine")
	block, _ := pem.Decode([]byte(csrPEM))
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	var tbs, whole asn1.RawValue
	for raw, into := range map[*[]byte]*asn1.RawValue{&parsed.Raw: &whole, &parsed.RawTBSCertificateRequest: &tbs} {
		if _, err := asn1.Unmarshal(*raw, into); err != nil {
			t.Fatal(err)
		}
	}
	marshal := func(v asn1.RawValue) []byte {
		v.FullBytes = nil
		out, err := asn1.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	signature := whole.Bytes[len(parsed.RawTBSCertificateRequest):]
	attributes := asn1.RawValue{Class: asn1.ClassContextSpecific, IsCompound: true, Bytes: bytes.Repeat(asn1.NullBytes, 60_000)}
	tbs.Bytes = append(slices.Clone(tbs.Bytes[:len(tbs.Bytes)-2]), marshal(attributes)...)
	whole.Bytes = append(marshal(tbs), signature...)
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: marshal(whole)})
	var got *x509.CertificateRequest
	most := certrequest.Memory(text)
	took := heap.Peak(func() { got, err = certrequest.Parse(text) }, func() int64 { return most })
	if err != nil || got.Subject.String() != "CN=pooh,O=honey" {
		t.Fatalf("Got %v, %v; want the request of pooh", got, err)
	}
	if took > most || took < most/3 {
		t.Errorf("Parsing %d bytes took %d, want at most %d, and at least a third", len(text), took, most)
	}
}

// TestARequestThatCannotBeStored needs no memory, because it is not parsed.
func TestARequestThatCannotBeStored(t *testing.T) {
	if certrequest.Memory([]byte(csrPEM)) < 20_000 {
		t.Error("A request that can be stored needs no memory")
	}
	many := bytes.Repeat([]byte(csrPEM), 5_000)
	if certrequest.Memory(many) != 0 {
		t.Error("A request that cannot be stored needs memory")
	}
	if _, err := certrequest.Parse(many); err == nil || !strings.Contains(err.Error(), "more than the 1572864 that can be stored") {
		t.Errorf("Got %v for a request that cannot be stored", err)
	}
}
