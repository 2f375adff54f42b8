package registration

import "k8s.io/component-base/metrics"

// Metrics are the metrics of the registration. A nil *Metrics counts nothing.
type Metrics struct {
	registered *metrics.GaugeVec
	failures   *metrics.CounterVec
	skipped    *metrics.GaugeVec
	narrowed   *metrics.GaugeVec
	// uninstalled is 1 while this replica registers nothing because of an uninstall.
	uninstalled *metrics.GaugeVec
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
		skipped: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Namespace: "postern", Name: "canary_skipped", StabilityLevel: metrics.ALPHA,
			Help: "1 if a rollout does not wait until the API server has called a new replica, as seen by this replica, else 0.",
		}, nil),
		narrowed: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Namespace: "postern", Subsystem: "webhook", Name: "narrowed", StabilityLevel: metrics.ALPHA,
			Help: "1 if others have added a selector to the webhook configuration for which plugins do not see all requests, as seen by a replica that registers, else 0.",
		}, []string{"type", "configuration"}),
		uninstalled: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Namespace: "postern", Name: "uninstalled", StabilityLevel: metrics.ALPHA,
			Help: "1 if this replica registers nothing because of an uninstall, else 0.",
		}, nil),
	}
	registry.MustRegister(m.registered, m.failures, m.skipped, m.narrowed, m.uninstalled)
	m.failures.WithLabelValues().Add(0)
	m.setCanarySkipped(false)
	m.setUninstalled(false)
	return m
}

func (m *Metrics) setCanarySkipped(skipped bool) {
	if m == nil {
		return
	}
	m.skipped.WithLabelValues().Set(number(skipped))
}

func (m *Metrics) setUninstalled(uninstalled bool) {
	if m != nil {
		m.uninstalled.WithLabelValues().Set(number(uninstalled))
	}
}

func (m *Metrics) setRegistered(kind, name string, ok bool) {
	if m == nil {
		return
	}
	m.registered.WithLabelValues(kind, name).Set(number(ok))
}

func (m *Metrics) setNarrowed(kind, name string, narrowed bool) {
	if m != nil {
		m.narrowed.WithLabelValues(kind, name).Set(number(narrowed))
	}
}

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
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
		m.narrowed.DeleteLabelValues(kind, name)
	}
}
