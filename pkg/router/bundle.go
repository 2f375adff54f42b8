package router

import (
	"encoding/base64"
	"encoding/pem"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// keepLargerBundles leaves the CA bundles that are registered in want where they
// hold all of ours. While a CA is replaced, replicas learn of it one after the
// other: one that has not yet would undo what another has just registered, and
// that one in turn, as long as they differ.
func keepLargerBundles(want, have map[string]any) {
	registered, _ := have["webhooks"].([]any)
	byName := named(registered)
	ours, _ := want["webhooks"].([]any)
	for name, w := range named(ours) {
		mine, _, _ := unstructured.NestedString(asMap(w), "clientConfig", "caBundle")
		theirs, _, _ := unstructured.NestedString(asMap(byName[name]), "clientConfig", "caBundle")
		if mine != "" && holdsAll(theirs, mine) {
			_ = unstructured.SetNestedField(asMap(w), theirs, "clientConfig", "caBundle")
		}
	}
}

func asMap(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

// holdsAll reports whether every certificate of part is in whole. Both are PEM in
// base64.
func holdsAll(whole, part string) bool {
	in, wanted := certificates(whole), certificates(part)
	for c := range wanted {
		if !in[c] {
			return false
		}
	}
	return len(wanted) > 0
}

func certificates(bundle string) map[string]bool {
	out := map[string]bool{}
	data, err := base64.StdEncoding.DecodeString(bundle)
	if err != nil {
		return out
	}
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		out[string(block.Bytes)] = true
	}
	return out
}
