package registration

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/postern-dev/postern/internal/segment"
)

// first returns the first segment, or "" if the paths have none.
func first(segments []string) string {
	if len(segments) == 0 {
		return ""
	}
	return segments[0]
}

// pathFields are the fields of a webhook that may have the registered path.
var pathFields = [][]string{{"clientConfig", "url"}, {"clientConfig", "service", "path"}}

// keepSegments keeps a registered segment in want if the segment is accepted,
// although it is not the one to register. Replicas learn of a new key one after the
// other. Without keepSegments, each replica would revert the segment that another
// has just registered.
func keepSegments(want, have map[string]any, accepted []string) {
	registered, _ := have["webhooks"].([]any)
	byName := named(registered)
	ours, _ := want["webhooks"].([]any)
	for name, w := range named(ours) {
		for _, field := range pathFields {
			mine, _, _ := unstructured.NestedString(asMap(w), field...)
			theirs, _, _ := unstructured.NestedString(asMap(byName[name]), field...)
			for _, other := range accepted[1:] {
				if mine != "" && theirs == strings.Replace(mine, "/"+accepted[0]+"/", "/"+other+"/", 1) {
					_ = unstructured.SetNestedField(asMap(w), theirs, field...)
				}
			}
		}
	}
}

// registeredSegments returns the segments of the paths at which the API server calls us.
func (d Deployment) registeredSegments(configs ...*unstructured.Unstructured) []string {
	var out []string
	for _, u := range configs {
		if isCanary(u) {
			continue
		}
		for _, w := range webhooksByName(u.Object) {
			if !d.callsUs(w) {
				continue
			}
			for _, field := range pathFields {
				path, _, _ := unstructured.NestedString(asMap(w), field...)
				path = strings.TrimPrefix(path, strings.TrimSuffix(d.URL, "/"))
				if s, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/"); segment.IsValid(s) {
					out = append(out, s)
				}
			}
		}
	}
	return out
}
