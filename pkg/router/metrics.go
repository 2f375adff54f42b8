package router

import (
	"strconv"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/component-base/metrics"
)

// Metrics are the router's. A nil *Metrics counts nothing.
type Metrics struct {
	requests   *metrics.CounterVec
	duration   *metrics.HistogramVec
	inFlight   *metrics.GaugeVec
	rejections *metrics.CounterVec
	panics     *metrics.CounterVec
	patchBytes *metrics.CounterVec
	registered *metrics.GaugeVec
}

const (
	namespace = "postern"
	subsystem = "webhook"
)

// durationBuckets reach from 0.1 ms, a decision from memory, to 10 s, the API
// server's default time-out.
func durationBuckets() []float64 {
	return []float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}
}

// NewMetrics makes the router's metrics and registers them.
func NewMetrics(registry metrics.KubeRegistry) *Metrics {
	counter := func(name, help string, labels ...string) *metrics.CounterVec {
		c := metrics.NewCounterVec(&metrics.CounterOpts{Namespace: namespace, Subsystem: subsystem, Name: name, Help: help, StabilityLevel: metrics.ALPHA}, labels)
		registry.MustRegister(c)
		return c
	}
	gauge := func(name, help string, labels ...string) *metrics.GaugeVec {
		g := metrics.NewGaugeVec(&metrics.GaugeOpts{Namespace: namespace, Subsystem: subsystem, Name: name, Help: help, StabilityLevel: metrics.ALPHA}, labels)
		registry.MustRegister(g)
		return g
	}
	m := &Metrics{
		requests: counter("requests_total", "Requests by service, phase, operation, HTTP code and verdict (allowed, denied, failed, rejected).",
			"service", "phase", "operation", "code", "verdict"),
		inFlight:   gauge("requests_in_flight", "Requests that are being worked on.", "service", "phase"),
		rejections: counter("rejected_bodies_total", "Requests whose envelope was wrong, by reason.", "service", "phase", "reason"),
		panics:     counter("panics_total", "Panics of admission services.", "service", "phase"),
		patchBytes: counter("patch_bytes_total", "Bytes of JSON patches that were sent.", "service", "phase"),
		registered: gauge("registered", "1 if the webhook configuration was last applied without an error, else 0.", "type", "configuration"),
		duration: metrics.NewHistogramVec(&metrics.HistogramOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "request_duration_seconds", Buckets: durationBuckets(), StabilityLevel: metrics.ALPHA,
			Help: "Time from the first byte of a request to its answer, in seconds.",
		}, []string{"service", "phase"}),
	}
	registry.MustRegister(m.duration)
	return m
}

// begin counts a request as in flight until the returned func is called.
func (m *Metrics) begin(h *half) func() {
	if m == nil {
		return func() {}
	}
	g := m.inFlight.WithLabelValues(h.service, h.phase)
	g.Inc()
	return g.Dec
}

func (m *Metrics) request(h *half, ar *admissionv1.AdmissionRequest, code int, v verdict, start time.Time) {
	if m == nil {
		return
	}
	m.requests.WithLabelValues(h.service, h.phase, operationLabel(ar), strconv.Itoa(code), string(v)).Inc()
	m.duration.WithLabelValues(h.service, h.phase).Observe(time.Since(start).Seconds())
}

// operationLabel keeps the number of series bounded whatever a sender writes.
func operationLabel(ar *admissionv1.AdmissionRequest) string {
	if ar == nil {
		return ""
	}
	switch ar.Operation {
	case admissionv1.Create, admissionv1.Update, admissionv1.Delete, admissionv1.Connect:
		return string(ar.Operation)
	}
	return "other"
}

func (m *Metrics) rejected(h *half, reason string) {
	if m != nil {
		m.rejections.WithLabelValues(h.service, h.phase, reason).Inc()
	}
}

func (m *Metrics) panicked(h *half) {
	if m != nil {
		m.panics.WithLabelValues(h.service, h.phase).Inc()
	}
}

func (m *Metrics) patched(h *half, n int) {
	if m != nil {
		m.patchBytes.WithLabelValues(h.service, h.phase).Add(float64(n))
	}
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

func (m *Metrics) forget(kind, name string) {
	if m != nil {
		m.registered.DeleteLabelValues(kind, name)
	}
}
