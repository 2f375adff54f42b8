package router

import (
	"bytes"
	"encoding/base64"
	"encoding/pem"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// joinBundles puts the CAs that are registered into the bundles of want, besides
// ours. When a CA is replaced, replicas learn of it one after the other: one that
// has not yet would undo what another has just registered, and that one in turn,
// as long as they differ, and calls of one of them would fail. What is too much in
// a bundle goes when ours changes, and at the next resync.
func joinBundles(want, have map[string]any) {
	registered, _ := have["webhooks"].([]any)
	byName := named(registered)
	ours, _ := want["webhooks"].([]any)
	for name, w := range named(ours) {
		mine, _, _ := unstructured.NestedString(asMap(w), "clientConfig", "caBundle")
		theirs, _, _ := unstructured.NestedString(asMap(byName[name]), "clientConfig", "caBundle")
		if joined := join(theirs, mine); mine != "" && joined != "" {
			_ = unstructured.SetNestedField(asMap(w), joined, "clientConfig", "caBundle")
		}
	}
}

// join returns theirs if it holds all of mine, both of them if it holds something
// else, and nothing if it is no bundle. All are PEM in base64.
func join(theirs, mine string) string {
	their, err := base64.StdEncoding.DecodeString(theirs)
	switch {
	case err != nil || len(certificates(theirs)) == 0:
		return ""
	case holdsAll(theirs, mine):
		return theirs
	}
	our, err := base64.StdEncoding.DecodeString(mine)
	if err != nil {
		return ""
	}
	return base64.StdEncoding.EncodeToString(slices.Concat(bytes.TrimSpace(their), []byte("\n"), our))
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
