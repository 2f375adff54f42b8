package registration

import "k8s.io/component-base/metrics"

// Metrics are the metrics of the registration. A nil *Metrics counts nothing.
type Metrics struct {
	registered *metrics.GaugeVec
	failures   *metrics.CounterVec
}

// NewMetrics makes the metrics of the registration and registers them.
func NewMetrics(registry metrics.KubeRegistry) *Metrics {
	m := &Metrics{
		registered: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Namespace: "postern", Subsystem: "webhook", Name: "registered", StabilityLevel: metrics.ALPHA,
			Help: "1 if the webhook configuration is registered as desired, by this replica or by the one that it yields to, else 0.",
		}, []string{"type", "configuration"}),
		failures: metrics.NewCounterVec(&metrics.CounterOpts{
			Namespace: "postern", Subsystem: "webhook", Name: "registration_failures_total", StabilityLevel: metrics.ALPHA,
			Help: "Attempts to register the webhook configurations that failed.",
		}, nil),
	}
	registry.MustRegister(m.registered, m.failures)
	m.failures.WithLabelValues().Add(0)
	return m
}

func (m *Metrics) setRegistered(kind, name string, ok bool) {
	if m == nil {
		return
	}
	value := 0.0
	if ok {
		value = 1
	}
	m.registered.WithLabelValues(kind, name).Set(value)
}

// failedToRegister counts an attempt to register that failed.
func (m *Metrics) failedToRegister() {
	if m != nil {
		m.failures.WithLabelValues().Inc()
	}
}

func (m *Metrics) forget(kind, name string) {
	if m != nil {
		m.registered.DeleteLabelValues(kind, name)
	}
}
