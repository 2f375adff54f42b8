package app

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
)

// maxNotices is the largest number of notices that wait for start.
const maxNotices = 16

// notices records Events about the Deployment. It stores the Events that are reported before the Deployment is known,
// and records them later.
type notices struct {
	mu       sync.Mutex
	recorder record.EventRecorder
	about    func() *corev1.ObjectReference
	waiting  []notice
}

// notice is a stored Event.
type notice struct{ eventType, reason, message string }

// start records the stored Events, and from then on each Event at once. It records nothing while about returns nil.
func (n *notices) start(recorder record.EventRecorder, about func() *corev1.ObjectReference) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.recorder, n.about = recorder, about
	for _, w := range n.waiting {
		n.record(w)
	}
	n.waiting = nil
}

// tell records or stores an Event. It does not wait for the API server.
func (n *notices) tell(eventType, reason, message string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := notice{eventType, reason, message}
	if n.recorder != nil {
		n.record(now)
	} else if len(n.waiting) < maxNotices {
		n.waiting = append(n.waiting, now)
	}
}

// record records an Event. The caller holds the lock.
func (n *notices) record(w notice) {
	if about := n.about(); about != nil {
		n.recorder.Event(about, w.eventType, w.reason, w.message)
	}
}

// recorder returns a recorder that sends Events until ctx ends.
func (p *process) recorder(ctx context.Context) record.EventRecorder {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: p.cluster.client.CoreV1().Events(p.webhookNamespace)})
	return broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "postern"})
}
