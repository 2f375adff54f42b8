package admit

import (
	"strconv"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/component-base/metrics"
)

// Metrics times the plugins. A nil *Metrics counts nothing.
type Metrics struct {
	duration *metrics.HistogramVec
}

// NewMetrics makes the chain's metrics and registers them. Its labels are those
// of kube-apiserver's apiserver_admission_controller_admission_duration_seconds;
// how many requests a plugin refused is the count with rejected="true".
func NewMetrics(registry metrics.KubeRegistry) *Metrics {
	m := &Metrics{duration: metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace: "postern", Subsystem: "admission_controller", Name: "admission_duration_seconds",
		Help:           "Time that an admission plugin took for a request, in seconds, by plugin, type (admit or validate), operation, and whether it rejected.",
		Buckets:        []float64{0.00001, 0.00005, 0.0001, 0.0005, 0.001, 0.005, 0.025, 0.1, 0.5, 1, 2.5, 10},
		StabilityLevel: metrics.ALPHA,
	}, []string{"name", "type", "operation", "rejected"})}
	registry.MustRegister(m.duration)
	return m
}

func (m *Metrics) observe(plugin string, p Phase, op admissionv1.Operation, start time.Time, err error) {
	if m == nil {
		return
	}
	kind := "validate"
	if p == Mutating {
		kind = "admit"
	}
	m.duration.WithLabelValues(plugin, kind, string(op), strconv.FormatBool(err != nil)).Observe(time.Since(start).Seconds())
}
