package deletiongate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics"

	"github.com/postern-dev/postern/pkg/admit"
	deletionv1alpha1 "github.com/postern-dev/postern/pkg/apis/deletion/v1alpha1"
)

const (
	// eventBurst is how many Events a replica writes at once for one pod. One a minute follows.
	eventBurst = 10

	reasonWaiting = "DeletionWaiting"
	reasonOpen    = "DeletionGateOpen"
	reasonLetGo   = "DeletionAllowed"
	reasonExpired = "DeletionWaitExpired"
	reasonFailed  = "DeletionGateUnavailable"
)

// reporter tells what gates do in Events and metrics.
type reporter struct {
	events   record.EventRecorder
	refusals *metrics.CounterVec
	waits    *metrics.HistogramVec
	requests *metrics.HistogramVec
	pods     *metrics.Gauge
}

func newReporter(d admit.Deps) (*reporter, error) {
	r := &reporter{
		events: newRecorder(d),
		refusals: metrics.NewCounterVec(&metrics.CounterOpts{
			Namespace: "postern", Subsystem: "deletion_gate", Name: "refusals_total",
			Help: "Deletions and evictions that DeletionGate refused, by gate.", StabilityLevel: metrics.ALPHA,
		}, []string{"gate"}),
		waits: metrics.NewHistogramVec(&metrics.HistogramOpts{
			Namespace: "postern", Subsystem: "deletion_gate", Name: "wait_duration_seconds",
			Help:    "Time from the first refusal to the deletion or eviction that DeletionGate let pass, in seconds, by gate and by result: ready, max_wait or unavailable.",
			Buckets: []float64{1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600}, StabilityLevel: metrics.ALPHA,
		}, []string{"gate", "result"}),
		requests: metrics.NewHistogramVec(&metrics.HistogramOpts{
			Namespace: "postern", Subsystem: "deletion_gate", Name: "backend_duration_seconds",
			Help:    "Time of the requests to the backends of DeletionGate, in seconds, by gate, action, and result: answered or failed.",
			Buckets: []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5, 5, 10, 30}, StabilityLevel: metrics.ALPHA,
		}, []string{"gate", "action", "result"}),
		pods: metrics.NewGauge(&metrics.GaugeOpts{
			Namespace: "postern", Subsystem: "deletion_gate", Name: "waiting_pods",
			Help: "Pods whose deletion this replica refused and whose gates it asks again.", StabilityLevel: metrics.ALPHA,
		}),
	}
	if d.Metrics == nil {
		return r, nil
	}
	return r, errors.Join(d.Metrics.Register(r.refusals), d.Metrics.Register(r.waits), d.Metrics.Register(r.requests), d.Metrics.Register(r.pods))
}

func newRecorder(d admit.Deps) record.EventRecorder {
	broadcaster := record.NewBroadcaster(record.WithCorrelatorOptions(record.CorrelatorOptions{BurstSize: eventBurst, QPS: 1. / 60}))
	d.Go(func(ctx context.Context) {
		broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: d.Client.CoreV1().Events("")})
		<-ctx.Done()
		broadcaster.Shutdown()
	})
	// Pods have a reference, for which no scheme is needed.
	return broadcaster.NewRecorder(runtime.NewScheme(), corev1.EventSource{Component: "postern"})
}

func reference(pod *corev1.Pod) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
}

// refused reports a refusal. Only the first one of a pod is an Event.
func (r *reporter) refused(pod *corev1.Pod, v verdict) {
	for _, o := range v.waits {
		r.refusals.WithLabelValues(o.gate.Name).Inc()
	}
	if v.first {
		r.events.Eventf(reference(pod), corev1.EventTypeNormal, reasonWaiting, "The deletion waits: %s", v.text())
	}
}

// open reports that the gates of a waiting pod are open.
func (r *reporter) open(pod *corev1.Pod, passes []outcome) {
	r.events.Eventf(reference(pod), corev1.EventTypeNormal, reasonOpen, "The pod may be deleted: %s", describe(passes))
}

// letGo reports a deletion that passes.
func (r *reporter) letGo(pod *corev1.Pod, passes []outcome) {
	kind, reason := corev1.EventTypeNormal, reasonLetGo
	for _, o := range passes {
		r.waits.WithLabelValues(o.gate.Name, o.result).Observe(o.waited.Seconds())
		switch o.result {
		case resultMaxWait:
			kind, reason = corev1.EventTypeWarning, reasonExpired
		case resultUnavailable:
			kind, reason = corev1.EventTypeWarning, reasonFailed
		}
	}
	r.events.Eventf(reference(pod), kind, reason, "Let go: %s", describe(passes))
}

func describe(passes []outcome) string {
	words := map[string]string{
		resultReady: "is ready", resultMaxWait: "was closed for its longest wait", resultUnavailable: "does not answer, and its failure policy is " + failOpen,
	}
	var parts []string
	for _, o := range passes {
		parts = append(parts, fmt.Sprintf("gate %q %s, after %v", o.gate.Name, words[o.result], o.waited.Truncate(time.Second)))
	}
	return strings.Join(parts, "; ")
}

func (r *reporter) asked(g *gate, action deletionv1alpha1.Action, took time.Duration, err error) {
	result := "answered"
	if err != nil {
		result = "failed"
	}
	r.requests.WithLabelValues(g.Name, string(action), result).Observe(took.Seconds())
}

func (r *reporter) waiting(pods int) { r.pods.Set(float64(pods)) }
