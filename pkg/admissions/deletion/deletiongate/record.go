package deletiongate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/postern-dev/postern/internal/names"
	"github.com/postern-dev/postern/internal/reads"
	"github.com/postern-dev/postern/pkg/admit"
	deletionv1alpha1 "github.com/postern-dev/postern/pkg/apis/deletion/v1alpha1"
)

const (
	// conflicts is how often a write is repeated. The kubelet writes the status of a pod at any time.
	conflicts = 5
	// maxPatching is how many pods are changed at a time before the gates are asked for requests, and how many with the answers.
	// In the background it is one each.
	maxPatching = 2
	// writeTimeout bounds the time of a write, also of one in the background, or for a request with more than the default
	// time-out, so that it does not keep others for longer.
	writeTimeout = 10 * time.Second
	// maxAhead is how far the clock of another replica may be ahead.
	maxAhead = time.Minute
)

// errGone means that the pod does not exist any more, or that its name belongs to another pod.
var errGone = errors.New("the pod is gone")

// entries are the state of the gates of a pod, by name.
type entries map[string]deletionv1alpha1.Record

// recordOf returns the record of a pod. Only users with a permission can write it. An entry that does not decode counts
// as none, so that the wait begins anew and ends.
func recordOf(pod *corev1.Pod) entries {
	r := entries{}
	if err := json.Unmarshal([]byte(pod.Annotations[deletionv1alpha1.WaitingAnnotation]), &r); err != nil || r == nil {
		return entries{}
	}
	for name, entry := range r {
		if entry.Since.IsZero() {
			delete(r, name)
		}
	}
	return r
}

// turn calls a write when it is its turn.
type turn func(ctx context.Context, write func() error) error

// write changes the record of a pod. The first of several replicas wins: the patch contains the resource version that the
// change is based on. change returns false if there is nothing to write, and may be called again with a newer record. It ends in
// time for the answer to a request.
func (k *keeper) write(ctx context.Context, in turn, pod *corev1.Pod, change func(entries) bool) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	ctx, cancel = admit.Early(ctx)
	defer cancel()
	var failed error
	for range conflicts {
		r := recordOf(pod)
		if !change(r) {
			return pod, nil
		}
		patched, err := k.patch(ctx, in, pod, r)
		switch {
		case err == nil:
			return patched, nil
		case !apierrors.IsConflict(err) && !apierrors.IsNotFound(err):
			return nil, err
		}
		failed = err
		// A webhook may answer 404, too.
		pod, err = get(ctx, k.client.Pods(pod.Namespace), pod.Name, pod.UID)
		if err != nil {
			return nil, err
		}
	}
	return nil, failed
}

// get returns a pod. Without a UID it is any pod of that name.
func get(ctx context.Context, pods typedcorev1.PodInterface, name string, uid types.UID) (*corev1.Pod, error) {
	if !names.CanExist(name) {
		return nil, errGone
	}
	ctx, end := reads.Scope(ctx)
	defer end()
	pod, err := pods.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) || err == nil && uid != "" && pod.UID != uid:
		return nil, errGone
	case err != nil:
		return nil, fmt.Errorf("reading the pod: %w", err)
	}
	return slim(pod), nil
}

// slim removes what no gate looks at from a pod, so that the pod takes little memory while its gates are asked.
func slim(pod *corev1.Pod) *corev1.Pod {
	pod.ManagedFields = nil
	pod.Spec = corev1.PodSpec{NodeName: pod.Spec.NodeName}
	pod.Status = corev1.PodStatus{Phase: pod.Status.Phase, Conditions: pod.Status.Conditions}
	return pod
}

// patch writes the record of a pod in its turn, and returns the changed pod. The API server answers with the metadata only; the rest is
// that of pod, because the patch has its resource version. Few patches are written at a time, because the memory for an answer to a
// change is not waited for.
func (k *keeper) patch(ctx context.Context, in turn, pod *corev1.Pod, r entries) (*corev1.Pod, error) {
	value, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encoding the record: %w", err)
	}
	document, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "resourceVersion": pod.ResourceVersion, "annotations": map[string]string{deletionv1alpha1.WaitingAnnotation: string(value)},
	}})
	if err != nil {
		return nil, fmt.Errorf("encoding the patch: %w", err)
	}
	var patched *corev1.Pod
	err = in(ctx, func() error {
		ctx, end := reads.Scope(ctx)
		defer end()
		pods := k.metadata.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(pod.Namespace)
		got, err := pods.Patch(ctx, pod.Name, types.MergePatchType, document, metav1.PatchOptions{FieldManager: "postern-deletion-gate"})
		if err == nil {
			patched = slim(&corev1.Pod{ObjectMeta: got.ObjectMeta, Spec: pod.Spec, Status: pod.Status})
		}
		return err
	})
	return patched, err
}

// remember keeps the time of a refusal that is not in the record of the pod.
func (k *keeper) remember(pod *corev1.Pod) {
	k.unrecorded.Add(pod.UID, k.firstTried(pod), longestMaxWait)
}

// remembers reports whether this process refused the pod without a record before.
func (k *keeper) remembers(pod *corev1.Pod) bool {
	_, ok := k.unrecorded.Get(pod.UID)
	return ok
}

// sofar returns how long each gate of a pod has been closed, according to the record or, if that has none, since this process
// first refused the pod. The result is resultMaxWait or resultWaiting.
func (k *keeper) sofar(pod *corev1.Pod, gates []*gate) []outcome {
	now, first, known := k.clock.Now(), k.firstTried(pod), recordOf(pod)
	var out []outcome
	for _, g := range gates {
		since := first
		if entry, ok := known[g.Name]; ok && entry.Since.Time.Before(first) {
			since = entry.Since.Time
		}
		o := outcome{gate: g, result: resultWaiting, waited: now.Sub(since)}
		if o.waited >= g.MaxWait.Duration {
			o.result = resultMaxWait
		}
		out = append(out, o)
	}
	return out
}

// firstTried returns when this process first refused the pod without a record, or now.
func (k *keeper) firstTried(pod *corev1.Pod) time.Time {
	if kept, ok := k.unrecorded.Get(pod.UID); ok {
		if first, ok := kept.(time.Time); ok {
			return first
		}
	}
	return k.clock.Now()
}

// expired returns the verdict about a pod all of whose gates were closed for their longest wait. It asks nobody: a pod whose
// record or node cannot be read or written, or takes too long, must not wait for ever.
func (k *keeper) expired(pod *corev1.Pod, gates []*gate) (verdict, bool) {
	passes := k.sofar(pod, gates)
	if slices.ContainsFunc(passes, func(o outcome) bool { return o.result == resultWaiting }) {
		return verdict{}, false
	}
	return verdict{pod: pod, passes: passes}, true
}

// claim changes the record so that this process has to send Prepare for the gates that it returns in mine: those without
// an entry, and those whose earlier claim did not lead to an answer. A new entry begins at first. An entry that begins in the
// future is of a process with a wrong clock. It counts as none, because the wait would have no end.
func claim(gates []*gate, first, now time.Time, mine map[string]bool) func(entries) bool {
	return func(r entries) bool {
		clear(mine)
		changed := false
		for _, g := range gates {
			entry, known := r[g.Name]
			if known && entry.Since.After(now.Add(maxAhead)) {
				entry, known = deletionv1alpha1.Record{}, false
			}
			if !known {
				entry.Since = stamp(first)
			}
			if g.mayClaim(&entry, now) {
				claimed := stamp(now)
				entry.Claimed = &claimed
				mine[g.Name] = true
			}
			if !known || mine[g.Name] {
				r[g.Name] = entry
				changed = true
			}
		}
		return changed
	}
}

// mayClaim reports whether no process is sending Prepare. A claim further in the future than a lease does not count.
func (g *gate) mayClaim(entry *deletionv1alpha1.Record, now time.Time) bool {
	return g.backend != nil && entry.Started == nil && (entry.Claimed == nil || now.Sub(entry.Claimed.Time).Abs() >= g.lease())
}

// lease is how long other replicas leave Prepare to the one that claimed it. It is longer than a request to the backend.
func (g *gate) lease() time.Duration { return g.backend.timeout + 5*time.Second }

// prepared changes the record by what the backends of the named gates did with Prepare: whether they answered.
func prepared(answered map[string]bool, now time.Time) func(entries) bool {
	return func(r entries) bool {
		changed := false
		for name, ok := range answered {
			entry, known := r[name]
			if !known || entry.Started != nil {
				continue
			}
			at := stamp(now)
			if ok {
				entry.Started = &at
			} else {
				entry.Failed = &at
			}
			r[name] = entry
			changed = true
		}
		return changed
	}
}

// opened changes the record of gates that are open, once for each.
func opened(gates []*gate, now time.Time) func(entries) bool {
	return func(r entries) bool {
		changed := false
		for _, g := range gates {
			if entry, ok := r[g.Name]; ok && entry.Ready == nil {
				at := stamp(now)
				entry.Ready = &at
				r[g.Name] = entry
				changed = true
			}
		}
		return changed
	}
}

// stamp returns the time as it is encoded.
func stamp(t time.Time) metav1.Time { return metav1.NewTime(t.UTC().Truncate(time.Second)) }
