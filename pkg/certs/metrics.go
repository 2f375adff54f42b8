package certs

import (
	"time"

	"k8s.io/component-base/metrics"
)

// Metrics are the metrics of the CA. A nil *Metrics counts nothing.
type Metrics struct {
	notAfter *metrics.Gauge
	steps    *metrics.CounterVec
	repairs  *metrics.CounterVec
}

// The reasons of repairs.
const (
	reasonMissing  = "missing"
	reasonInvalid  = "invalid"
	reasonReplaced = "replaced"
)

// NewMetrics makes the metrics of the CA and registers them.
func NewMetrics(registry metrics.KubeRegistry) *Metrics {
	m := &Metrics{
		notAfter: metrics.NewGauge(&metrics.GaugeOpts{
			Namespace: "postern", Subsystem: "ca", Name: "expiry_timestamp_seconds", StabilityLevel: metrics.ALPHA,
			Help: "When the CA that signs expires, in seconds since 1970.",
		}),
		steps: metrics.NewCounterVec(&metrics.CounterOpts{
			Namespace: "postern", Subsystem: "ca", Name: "steps_total", StabilityLevel: metrics.ALPHA,
			Help: "Steps by which this replica made or replaced the CA: created, begun, promoted, retired, kept, superseded.",
		}, []string{"step"}),
		repairs: metrics.NewCounterVec(&metrics.CounterOpts{
			Namespace: "postern", Subsystem: "ca", Name: "repairs_total", StabilityLevel: metrics.ALPHA,
			Help: "Times that this replica repaired the stored CA: it was missing, invalid, or had to be replaced.",
		}, []string{"reason"}),
	}
	registry.MustRegister(m.notAfter, m.steps, m.repairs)
	// Prometheus counts an increase only between two values, so each reason starts with 0.
	for _, reason := range []string{reasonMissing, reasonInvalid, reasonReplaced} {
		m.repairs.WithLabelValues(reason).Add(0)
	}
	return m
}

func (m *Metrics) expiry(at time.Time) {
	if m != nil {
		m.notAfter.Set(float64(at.Unix()))
	}
}

func (m *Metrics) step(name string) {
	if m != nil {
		m.steps.WithLabelValues(name).Inc()
	}
}

func (m *Metrics) repair(reason string) {
	if m != nil {
		m.repairs.WithLabelValues(reason).Inc()
	}
}
