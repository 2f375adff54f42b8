// Package usage returns the cpu and memory usage of the containers of an image, from Prometheus or from a static table.
package usage

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// Enough is the number of samples that suffices for an estimate without a wider scope.
	Enough = 30

	week  = 7 * 24 * time.Hour
	month = 30 * 24 * time.Hour
)

// Source is a source of data about the usage of containers.
type Source interface {
	// Percentile returns the percentile of the samples that a query selects. An answer without samples is not an
	// error.
	Percentile(context.Context, Query) (Answer, error)
}

// Query selects the samples of the containers of an image.
type Query struct {
	// Resource is cpu or memory.
	Resource corev1.ResourceName
	// Image is the image of the containers. Without a version it matches all versions.
	Image Image
	// Namespace is "" for all namespaces.
	Namespace string
	// Window is the age of the oldest selected sample.
	Window time.Duration
}

// Answer is the answer to a query.
type Answer struct {
	// Value is in thousandths of a core for cpu and in bytes for memory.
	Value int64
	// Samples is the number of samples that the percentile Value was computed from.
	Samples int64
}

// Scope is a resource of an image, in one namespace or in all. Scopes are comparable.
type Scope struct {
	Resource corev1.ResourceName
	Image    Image
	// Namespace is "" for all namespaces.
	Namespace string
	// Last is true if no wider scope follows.
	Last bool
}

// Scopes returns the scopes of a resource of an image, from the narrowest to the widest.
func Scopes(resource corev1.ResourceName, image Image, namespace string, namespaceOnly bool) []Scope {
	if namespaceOnly {
		return []Scope{{resource, image, namespace, true}}
	}
	narrow := Scope{resource, image, namespace, false}
	return []Scope{narrow, narrow.Wider()}
}

// Wider returns the scope for all namespaces.
func (s Scope) Wider() Scope { return Scope{s.Resource, s.Image, "", true} }

// Estimate widens the query within a scope until the answer has enough samples: the version of the image in 7 days, in
// 30 days, and if no wider scope follows, every version of the image in 30 days. It returns the last answer.
//
// Upstream: the steps, their order, and that the last answer counts with fewer samples too.
func Estimate(ctx context.Context, source Source, s Scope) (Answer, error) {
	steps := []Query{
		{s.Resource, s.Image, s.Namespace, week},
		{s.Resource, s.Image, s.Namespace, month},
	}
	if s.Last {
		steps = append(steps, Query{s.Resource, s.Image.anyVersion(), s.Namespace, month})
	}
	var last Answer
	for _, q := range steps {
		var err error
		if last, err = source.Percentile(ctx, q); err != nil {
			return Answer{}, err
		}
		if last.Samples >= Enough {
			break
		}
	}
	return last, nil
}
