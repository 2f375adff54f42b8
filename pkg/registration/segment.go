package registration

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/postern-dev/postern/pkg/router"
)

// prefix returns the part of a registered path that precedes the path of the
// service.
func prefix(keys [][]byte) string {
	if len(keys) == 0 {
		return ""
	}
	return "/" + router.Segment(keys[0])
}

// keepSegments keeps a registered segment in want if the segment is accepted,
// although it is not the one to register. Replicas learn of a new key one after the
// other. Without keepSegments, each replica would revert the segment that another
// has just registered.
func keepSegments(want, have map[string]any, keys [][]byte) {
	if len(keys) < 2 {
		return
	}
	registered, _ := have["webhooks"].([]any)
	byName := named(registered)
	ours, _ := want["webhooks"].([]any)
	for name, w := range named(ours) {
		for _, field := range [][]string{{"clientConfig", "url"}, {"clientConfig", "service", "path"}} {
			mine, _, _ := unstructured.NestedString(asMap(w), field...)
			theirs, _, _ := unstructured.NestedString(asMap(byName[name]), field...)
			for _, key := range keys[1:] {
				if mine != "" && theirs == strings.Replace(mine, prefix(keys)+"/", "/"+router.Segment(key)+"/", 1) {
					_ = unstructured.SetNestedField(asMap(w), theirs, field...)
				}
			}
		}
	}
}
