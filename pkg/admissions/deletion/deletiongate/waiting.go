package deletiongate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

const (
	// maxWaiting is the number of pods that a replica asks about on its own account.
	maxWaiting = 10000
	// maxAsking is how many of them it asks about at a time.
	maxAsking = 8
	// askTimeout bounds the questions about one pod.
	askTimeout = 30 * time.Second
)

// waiting has the pods that this replica refused to delete. It asks their gates again, and marks a pod in its record when
// all are open. This change of the pod makes controllers repeat the deletion at once, instead of after their backoff, which
// may be minutes. It does not decide: the gates are asked again when the pod is deleted.
type waiting struct {
	keeper *keeper
	gates  []*gate

	mu   sync.Mutex
	pods map[key]time.Time // when to ask again
}

func newWaiting(k *keeper, gates []*gate) *waiting {
	return &waiting{keeper: k, gates: gates, pods: map[key]time.Time{}}
}

// add begins to ask about a pod.
func (w *waiting) add(pod *corev1.Pod, gates []*gate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := key{pod.Namespace, pod.Name, pod.UID}
	if _, known := w.pods[id]; !known && len(w.pods) < maxWaiting {
		w.pods[id] = w.next(gates)
	}
	w.keeper.reporter.waiting(len(w.pods))
}

func (w *waiting) next(gates []*gate) time.Time {
	return w.keeper.clock.Now().Add(time.Duration(retryAfter(gates)) * time.Second)
}

func (w *waiting) run(ctx context.Context) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			w.round(ctx)
		}
	}
}

// round asks about all pods that are due.
func (w *waiting) round(ctx context.Context) {
	slots := make(chan struct{}, maxAsking)
	var all sync.WaitGroup
	for _, id := range w.due() {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			w.look(ctx, id)
		})
	}
	all.Wait()
}

func (w *waiting) due() []key {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.keeper.clock.Now()
	var out []key
	for id, at := range w.pods {
		if !now.Before(at) {
			out = append(out, id)
		}
	}
	return out
}

// look asks about one pod. A pod that is gone, may go, or is not held back any more is forgotten.
func (w *waiting) look(ctx context.Context, id key) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	done, gates, err := w.isOpen(ctx, id)
	if err != nil && ctx.Err() == nil {
		w.keeper.failures.Do(func() {
			klog.FromContext(ctx).Error(err, "Could not ask the gates of a waiting pod", "plugin", "DeletionGate", "pod", klog.KRef(id.namespace, id.name))
		})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if done {
		delete(w.pods, id)
	} else {
		w.pods[id] = w.next(gates)
	}
	w.keeper.reporter.waiting(len(w.pods))
}

func (w *waiting) isOpen(ctx context.Context, id key) (bool, []*gate, error) {
	pod, err := get(ctx, w.keeper.client.Pods(id.namespace), id.name, id.uid)
	if errors.Is(err, errGone) {
		return true, nil, nil
	}
	if err != nil {
		return false, w.gates, err
	}
	gates := slices.DeleteFunc(slices.Clone(w.gates), func(g *gate) bool { return !g.selects(pod) })
	if len(gates) == 0 || !holds(pod) {
		return true, nil, nil
	}
	v, err := w.keeper.ask(ctx, w.keeper.background, pod, gates, asker{})
	if err != nil || len(v.waits) > 0 {
		// A record that cannot be written is not tried again on our own account: such pods would keep others waiting.
		never := v.unwritten != nil && len(recordOf(pod)) == 0
		return never || errors.Is(err, errGone), gates, err
	}
	written := false
	_, err = w.keeper.write(ctx, w.keeper.background.Then, v.pod, func(r entries) bool {
		written = opened(gates, w.keeper.clock.Now())(r)
		return written
	})
	if err == nil && written {
		w.keeper.reporter.open(pod, v.passes)
	}
	if err != nil && !errors.Is(err, errGone) {
		// A mark that cannot be written must not be tried for ever.
		_, expired := w.keeper.expired(pod, gates)
		return expired, gates, fmt.Errorf("marking the pod: %w", err)
	}
	return true, gates, nil
}
