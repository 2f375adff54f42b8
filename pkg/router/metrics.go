package router

import (
	"strconv"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/component-base/metrics"
)

// Metrics are the metrics of the router. A nil *Metrics counts nothing.
type Metrics struct {
	requests   *metrics.CounterVec
	duration   *metrics.HistogramVec
	inFlight   *metrics.GaugeVec
	rejections *metrics.CounterVec
	panics     *metrics.CounterVec
	patchBytes *metrics.CounterVec
	shorts     *metrics.CounterVec

	inFlightLimit, bytes, bytesLimit *metrics.GaugeVec

	held metrics.GaugeMetric // The series of bytes.
}

// series are the series of one half of a service that change with each request. They are looked up at the first one,
// because looking one up takes longer than changing it.
type series struct {
	inFlight metrics.GaugeMetric
	duration metrics.ObserverMetric
}

// of returns the series of a half.
func (m *Metrics) of(service, phase string) func() series {
	return sync.OnceValue(func() series {
		return series{inFlight: m.inFlight.WithLabelValues(service, phase), duration: m.duration.WithLabelValues(service, phase)}
	})
}

const (
	namespace = "postern"
	subsystem = "webhook"
)

// durationBuckets reach from 0.1 ms, a decision from memory, to 30 s, the longest
// time-out of a webhook. 10 s is the default.
func durationBuckets() []float64 {
	return []float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}
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
		inFlightLimit: gauge("requests_in_flight_limit", "Requests that may be decided at a time, or 0 for no limit."),
		bytes:         gauge("bytes_in_flight", "Bytes of memory that are set aside for requests: for their bodies, for what they are decoded into, and for what is read to decide them."),
		bytesLimit:    gauge("bytes_in_flight_limit", "Bytes of memory that may be set aside for requests at a time, or 0 for no limit."),
		requests: counter("requests_total", "Requests by service, phase, operation, HTTP code and verdict (allowed, denied, failed, rejected).",
			"service", "phase", "operation", "code", "verdict"),
		inFlight:   gauge("requests_in_flight", "Requests that are being decided, also those that were answered at their deadline.", "service", "phase"),
		rejections: counter("rejected_bodies_total", "Requests that were answered without a decision of the service, by reason.", "service", "phase", "reason"),
		panics:     counter("panics_total", "Panics of admission services.", "service", "phase"),
		patchBytes: counter("patch_bytes_total", "Bytes of JSON patches that were sent.", "service", "phase"),
		shorts: counter("short_requests_total", "Requests with less time than the registered time-out. They are denied if they cannot be decided, whatever the failure policy is.",
			"service", "phase"),
		duration: metrics.NewHistogramVec(&metrics.HistogramOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "request_duration_seconds", Buckets: durationBuckets(), StabilityLevel: metrics.ALPHA,
			Help: "Time from the first byte of a request to its answer, in seconds.",
		}, []string{"service", "phase"}),
	}
	registry.MustRegister(m.duration)
	m.held = m.bytes.WithLabelValues()
	return m
}

// start exports the panics of a half as 0. Prometheus counts an increase only between two values, so it would miss the
// first panic of a series that starts with it.
func (m *Metrics) start(service, phase string) {
	if m != nil {
		m.panics.WithLabelValues(service, phase).Add(0)
	}
}

// setLimits exports the limits of a router.
func (m *Metrics) setLimits(l Limits) {
	if m == nil {
		return
	}
	m.inFlightLimit.WithLabelValues().Set(float64(l.Requests))
	m.bytesLimit.WithLabelValues().Set(float64(l.Bytes))
}

// holds counts bytes that a request took, or gave back.
func (m *Metrics) holds(n int64) {
	if m != nil && n != 0 {
		m.held.Add(float64(n))
	}
}

// began counts a request as in flight until ended is called.
func (m *Metrics) began(h *half) {
	if m != nil {
		h.series().inFlight.Inc()
	}
}

func (m *Metrics) ended(h *half) {
	if m != nil {
		h.series().inFlight.Dec()
	}
}

func (m *Metrics) request(h *half, about *subject, code int, v verdict, start time.Time) {
	if m == nil {
		return
	}
	m.requests.WithLabelValues(h.service, h.phase, operationLabel(about), strconv.Itoa(code), string(v)).Inc()
	h.series().duration.Observe(time.Since(start).Seconds())
}

// operationLabel bounds the number of series, whatever operation a sender names.
func operationLabel(about *subject) string {
	if about == nil {
		return ""
	}
	switch about.operation {
	case admissionv1.Create, admissionv1.Update, admissionv1.Delete, admissionv1.Connect:
		return string(about.operation)
	}
	return "other"
}

func (m *Metrics) rejected(h *half, reason string) {
	if m != nil {
		m.rejections.WithLabelValues(h.service, h.phase, reason).Inc()
	}
}

func (m *Metrics) short(h *half) {
	if m != nil {
		m.shorts.WithLabelValues(h.service, h.phase).Inc()
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
