package registration

import (
	"bytes"
	"encoding/base64"
	"encoding/pem"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
)

// configurations are the objects in the stores.
func configurations(stores map[string]cache.Store) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for _, store := range stores {
		out = append(out, objects(store)...)
	}
	return out
}

func objects(store cache.Store) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for _, obj := range store.List() {
		if u, ok := obj.(*unstructured.Unstructured); ok {
			out = append(out, u)
		}
	}
	return out
}

// all returns the configurations of both kinds.
func all(byKind map[string][]*unstructured.Unstructured) []*unstructured.Unstructured {
	return slices.Concat(slices.Collect(maps.Values(byKind))...)
}

func webhookList(config map[string]any) []any {
	list, _ := config["webhooks"].([]any)
	return list
}

func webhooksByName(config map[string]any) map[string]any { return named(webhookList(config)) }

// caBundle returns a webhook's bundle: PEM in base64.
func caBundle(webhook any) string {
	text, _, _ := unstructured.NestedString(asMap(webhook), "clientConfig", "caBundle")
	return text
}

func asMap(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
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
