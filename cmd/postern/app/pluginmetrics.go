package app

import (
	"strconv"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/component-base/metrics"

	"github.com/postern-dev/postern/pkg/admit"
)

// observePlugins registers a histogram of the time that plugins take, and a counter of
// the denials of each enabled plugin. It returns the func that fills both. The labels of
// the histogram are those of apiserver_admission_controller_admission_duration_seconds in
// kube-apiserver. The count with rejected="true" is the number of requests that a plugin
// did not admit: denials and failures.
func observePlugins(registry metrics.KubeRegistry, enabled []string) func(string, admit.Phase, *admit.Request, time.Duration, error) {
	duration := metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace: "postern", Subsystem: "admission_controller", Name: "admission_duration_seconds",
		Help:           "Time that an admission plugin took for a request, in seconds, by plugin, type (admit or validate), operation, and whether it rejected.",
		Buckets:        []float64{0.00001, 0.00005, 0.0001, 0.0005, 0.001, 0.005, 0.025, 0.1, 0.5, 1, 2.5, 10},
		StabilityLevel: metrics.ALPHA,
	}, []string{"name", "type", "operation", "rejected"})
	registry.MustRegister(duration)
	denials := countByPlugin(registry, "denials_total", "Requests that a plugin denied, by plugin.")
	for _, plugin := range enabled {
		// Prometheus counts an increase only between two values, so it would miss the first denial.
		denials.WithLabelValues(plugin).Add(0)
	}
	known := observers{vec: duration, byLabels: map[observed]metrics.ObserverMetric{}}
	return func(plugin string, phase admit.Phase, r *admit.Request, took time.Duration, err error) {
		known.of(observed{plugin, phase, r.Operation, err != nil}).Observe(took.Seconds())
		if admit.IsDenial(err) {
			denials.WithLabelValues(plugin).Inc()
		}
	}
}

// countMended registers a counter of the denials that a plugin does not make because another replica may not run it, and
// returns the func that counts.
func countMended(registry metrics.KubeRegistry) func(plugin string) {
	mended := countByPlugin(registry, "mended_total",
		"Requests that were admitted although a plugin denies the object, which lacks changes of the plugin, because another replica may not run the plugin, by plugin.")
	return func(plugin string) { mended.WithLabelValues(plugin).Inc() }
}

// countByPlugin registers a counter with a series for each plugin.
func countByPlugin(registry metrics.KubeRegistry, name, help string) *metrics.CounterVec {
	c := metrics.NewCounterVec(&metrics.CounterOpts{Namespace: "postern", Name: name, Help: help, StabilityLevel: metrics.ALPHA}, []string{"plugin"})
	registry.MustRegister(c)
	return c
}

// observed has the labels of a series.
type observed struct {
	plugin    string
	phase     admit.Phase
	operation admissionv1.Operation
	rejected  bool
}

// observers caches the observers of a histogram. Looking one up in the histogram takes longer than many plugins. There
// are few observers, because plugins see only the operations of their rules.
type observers struct {
	vec      *metrics.HistogramVec
	lock     sync.RWMutex
	byLabels map[observed]metrics.ObserverMetric
}

func (o *observers) of(labels observed) metrics.ObserverMetric {
	o.lock.RLock()
	observer, ok := o.byLabels[labels]
	o.lock.RUnlock()
	if ok {
		return observer
	}
	kind := "validate"
	if labels.phase == admit.Mutating {
		kind = "admit"
	}
	observer = o.vec.WithLabelValues(labels.plugin, kind, string(labels.operation), strconv.FormatBool(labels.rejected))
	o.lock.Lock()
	defer o.lock.Unlock()
	o.byLabels[labels] = observer
	return observer
}
