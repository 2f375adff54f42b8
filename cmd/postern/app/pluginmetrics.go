package app

import (
	"strconv"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/postern-dev/postern/pkg/admissions/admit"
)

// observePlugins registers a histogram of the time that plugins take, and returns
// the func that fills it. The labels are those of
// apiserver_admission_controller_admission_duration_seconds in kube-apiserver. The
// count with rejected="true" is the number of requests that a plugin did not admit.
func observePlugins(registry metrics.KubeRegistry) func(string, admit.Phase, *admit.Request, time.Duration, error) {
	duration := metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace: "postern", Subsystem: "admission_controller", Name: "admission_duration_seconds",
		Help:           "Time that an admission plugin took for a request, in seconds, by plugin, type (admit or validate), operation, and whether it rejected.",
		Buckets:        []float64{0.00001, 0.00005, 0.0001, 0.0005, 0.001, 0.005, 0.025, 0.1, 0.5, 1, 2.5, 10},
		StabilityLevel: metrics.ALPHA,
	}, []string{"name", "type", "operation", "rejected"})
	registry.MustRegister(duration)
	return func(plugin string, phase admit.Phase, r *admit.Request, took time.Duration, err error) {
		kind := "validate"
		if phase == admit.Mutating {
			kind = "admit"
		}
		duration.WithLabelValues(plugin, kind, string(r.Operation), strconv.FormatBool(err != nil)).Observe(took.Seconds())
	}
}
