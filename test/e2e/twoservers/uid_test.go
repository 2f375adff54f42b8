package twoservers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// anyUID matches a uid that an API server has generated, for example in an owner reference.
var anyUID = regexp.MustCompile(`\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`)

// uidOf matches a placeholder for the uid of an object, which only the API server knows.
var uidOf = regexp.MustCompile(`uid of ([A-Z][A-Za-z]+) ([a-z0-9.-]+)`)

// withUIDs returns the object with each placeholder replaced by the uid.
func (s *server) withUIDs(ctx context.Context, o object, namespace string) (object, error) {
	document, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	for _, found := range uidOf.FindAllStringSubmatch(string(document), -1) {
		at, err := s.find(object{"apiVersion": "v1", "kind": found[1], "metadata": object{"name": found[2]}}, namespace)
		if err != nil {
			return nil, err
		}
		have, err := s.get(ctx, at)
		if err != nil {
			return nil, err
		}
		if have == nil {
			return nil, fmt.Errorf("%q: there is none", found[0])
		}
		uid := (&unstructured.Unstructured{Object: have}).GetUID()
		document = bytes.ReplaceAll(document, []byte(found[0]), []byte(uid))
	}
	out := object{}
	return out, json.Unmarshal(document, &out)
}
