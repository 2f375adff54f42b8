package initialresources

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/pkg/admissions/pods/initialresources/internal/usage"
)

// scopesOf returns the scopes of each want, from the narrowest to the widest. An image that is not a valid reference
// has no scopes.
func scopesOf(namespace string, only bool, wants []want) [][]usage.Scope {
	scopes := make([][]usage.Scope, len(wants))
	for i, w := range wants {
		if image, err := usage.ParseImage(w.Image); err == nil {
			scopes[i] = usage.Scopes(w.resource, image, namespace, only)
		}
	}
	return scopes
}

// direct is an estimator with a source that answers without delay.
type direct struct {
	source        usage.Source
	namespaceOnly bool
}

// estimate implements estimator.
func (d *direct) estimate(ctx context.Context, namespace string, _ *corev1.Pod, wants []want) []int64 {
	amounts := make([]int64, len(wants))
	for i, scopes := range scopesOf(namespace, d.namespaceOnly, wants) {
		amounts[i] = widen(scopes, func(s usage.Scope) (usage.Answer, bool) {
			answer, err := usage.Estimate(ctx, d.source, s)
			if err != nil {
				klog.FromContext(ctx).Error(err, "Could not read the usage of an image", "resource", s.Resource)
			}
			return answer, err == nil
		})
	}
	return amounts
}

// widen returns the amount of the narrowest scope with enough samples, or else of the last scope. It returns 0 if it
// reaches a scope without an answer.
func widen(scopes []usage.Scope, answerFor func(usage.Scope) (usage.Answer, bool)) int64 {
	for _, s := range scopes {
		answer, ok := answerFor(s)
		if !ok {
			return 0
		}
		if answer.Samples >= usage.Enough || s.Last {
			return answer.Value
		}
	}
	return 0
}

// observed is a source that records metrics of the calls.
type observed struct {
	usage.Source
	queries *metrics.HistogramVec
}

// Percentile implements usage.Source.
func (o observed) Percentile(ctx context.Context, q usage.Query) (usage.Answer, error) {
	start := time.Now()
	answer, err := o.Source.Percentile(ctx, q)
	result := "answered"
	switch {
	case err != nil:
		result = "failed"
	case answer.Samples == 0:
		result = "empty"
	}
	o.queries.WithLabelValues(result).Observe(time.Since(start).Seconds())
	return answer, err
}
