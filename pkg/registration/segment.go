package registration

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/postern-dev/postern/internal/segment"
)

// prefix returns the part of a registered path that precedes the path of the
// service.
func prefix(s string) string {
	if s == "" {
		return ""
	}
	return "/" + s
}

// base returns the part of a registered URL that precedes the path. It is empty if the API server calls a Service.
func (d Deployment) base() string { return strings.TrimSuffix(d.URL, "/") }

// pathFields are the fields of a webhook that may have the registered path.
var pathFields = [][]string{{"clientConfig", "url"}, {"clientConfig", "service", "path"}}

// keepSegments keeps a registered segment in want if it is one of those to leave
// alone. Replicas learn of a new key one after the other. Without keepSegments, each
// replica would revert the segment that another has just registered.
func (d Deployment) keepSegments(want, have map[string]any, at endpoint) {
	registered, _ := have["webhooks"].([]any)
	byName := named(registered)
	ours, _ := want["webhooks"].([]any)
	for name, w := range named(ours) {
		for _, field := range pathFields {
			mine, _, _ := unstructured.NestedString(asMap(w), field...)
			theirs, _, _ := unstructured.NestedString(asMap(byName[name]), field...)
			for _, other := range at.others {
				if mine != "" && theirs == d.base()+prefix(other)+strings.TrimPrefix(mine, d.base()+prefix(at.segment)) {
					_ = unstructured.SetNestedField(asMap(w), theirs, field...)
				}
			}
		}
	}
}

// registeredSegments returns the segments of the paths at which the API server calls us, with "" for a path without one.
func (d Deployment) registeredSegments(configs ...*unstructured.Unstructured) []string {
	var out []string
	for _, w := range d.ourWebhooks(configs) {
		for _, field := range pathFields {
			path, _, _ := unstructured.NestedString(asMap(w), field...)
			path = strings.TrimPrefix(path, d.base())
			if !strings.HasPrefix(path, "/") {
				continue
			}
			s, _, _ := strings.Cut(path[1:], "/")
			if !segment.IsValid(s) {
				s = ""
			}
			out = append(out, s)
		}
	}
	return out
}

// RegisteredSegments returns the segments of the registered webhooks that call Postern.
func RegisteredSegments(ctx context.Context, client dynamic.Interface, d Deployment) ([]string, error) {
	byKind, err := d.listManaged(ctx, client)
	if err != nil {
		return nil, err
	}
	return d.registeredSegments(all(byKind)...), nil
}
