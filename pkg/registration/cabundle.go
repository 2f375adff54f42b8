package registration

import (
	"bytes"
	"encoding/base64"
	"encoding/pem"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// caBundle returns a webhook's bundle: PEM in base64.
func caBundle(webhook any) string {
	text, _, _ := unstructured.NestedString(asMap(webhook), "clientConfig", "caBundle")
	return text
}

// concat appends PEM to PEM in base64. Invalid base64 is replaced.
func concat(bundle string, more []byte) string {
	data, err := base64.StdEncoding.DecodeString(bundle)
	if err != nil {
		data = nil
	}
	if len(more) == 0 {
		return bundle
	}
	if data = bytes.TrimSpace(data); len(data) > 0 {
		data = append(slices.Clone(data), '\n')
	}
	return base64.StdEncoding.EncodeToString(append(data, more...))
}

// lacking returns the certificates of cas that the bundle lacks, in PEM.
func lacking(bundle string, cas []byte) []byte {
	in := certificates(bundle)
	var out []byte
	for _, block := range blocks(base64.StdEncoding.EncodeToString(cas)) {
		if !in[string(block.Bytes)] {
			out = append(out, pem.EncodeToMemory(block)...)
		}
	}
	return out
}

// sameCAs reports whether two bundles hold the same certificates, in any order.
func sameCAs(a, b string) bool {
	x, y := certificates(a), certificates(b)
	if len(x) != len(y) {
		return false
	}
	for c := range x {
		if !y[c] {
			return false
		}
	}
	return len(x) > 0
}

func certificates(bundle string) map[string]bool {
	out := map[string]bool{}
	for _, block := range blocks(bundle) {
		out[string(block.Bytes)] = true
	}
	return out
}

func blocks(bundle string) []*pem.Block {
	data, err := base64.StdEncoding.DecodeString(bundle)
	if err != nil {
		return nil
	}
	var out []*pem.Block
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		out = append(out, block)
	}
	return out
}
