package deletiongate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/postern-dev/postern/pkg/admissions/admit"
	deletionv1alpha1 "github.com/postern-dev/postern/pkg/apis/deletion/v1alpha1"
)

const (
	// remembered is the number of answers, and of pods without a record, that a process remembers.
	remembered = 4096
	// answerTTL is how long an answer that a gate is closed counts. An answer that it is open is not kept.
	answerTTL = time.Second
)

// asker is who deletes a pod. It is the zero asker where Postern asks on its own account.
type asker struct {
	cause deletionv1alpha1.Cause
	user  string
}

// verdict is the outcome of all gates of a pod.
type verdict struct {
	waits, passes []outcome
	// first is true if the refusal is the first one.
	first bool
}

// outcome is the outcome of one gate.
type outcome struct {
	gate *gate
	// result is one of the constants below.
	result string
	// message says what the pod waits for.
	message string
	// waited is the time since the first refusal.
	waited time.Duration
}

const (
	resultReady       = "ready"
	resultMaxWait     = "max_wait"
	resultUnavailable = "unavailable"
	resultWaiting     = "waiting"
)

// text says what a pod waits for.
func (v verdict) text() string {
	var parts []string
	for _, o := range v.waits {
		part := fmt.Sprintf("gate %q has been closed for %v of at most %v", o.gate.Name, o.waited.Truncate(time.Second), o.gate.MaxWait.Duration)
		if o.message != "" {
			part += ": " + o.message
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "; ")
}

// keeper asks gates, and keeps the records of pods.
type keeper struct {
	client      typedcorev1.PodsGetter
	clock       clock.PassiveClock
	whereabouts *whereabouts
	reporter    *reporter
	waiting     *waiting
	// closed has the messages of gates that were closed a moment ago.
	closed *cache.LRUExpireCache
	// unrecorded has the times of first refusals that could not be recorded, by the UID of the pod.
	unrecorded *cache.LRUExpireCache
	// failures bounds the log lines about backends.
	failures rate.Sometimes
}

func newKeeper(d admit.Deps, gates []*gate) (*keeper, error) {
	r, err := newReporter(d)
	if err != nil {
		return nil, err
	}
	namespaces := d.Informers.Core().V1().Namespaces()
	k := &keeper{
		client: d.Client.CoreV1(), clock: d.Clock, reporter: r, failures: rate.Sometimes{Interval: time.Second},
		whereabouts: &whereabouts{namespaces.Lister(), d.Client.CoreV1().Namespaces(), d.Client.CoreV1().Nodes()},
		closed:      cache.NewLRUExpireCacheWithClock(remembered, d.Clock), unrecorded: cache.NewLRUExpireCacheWithClock(remembered, d.Clock),
	}
	k.waiting = newWaiting(k, gates)
	d.Go(k.waiting.run)
	return k, nil
}

func (k *keeper) watch(pod *corev1.Pod, gates []*gate) { k.waiting.add(pod, gates) }

// ask asks the gates of a pod. It first writes the record of the pod, so that the preparation has one sender.
func (k *keeper) ask(ctx context.Context, pod *corev1.Pod, gates []*gate, by asker) (verdict, error) {
	if v, ok := k.expired(pod, gates); ok {
		return v, nil
	}
	now, mine := k.clock.Now(), map[string]bool{}
	known := recordOf(pod)
	recorded, err := write(ctx, k.client.Pods(pod.Namespace), pod, claim(gates, k.firstTried(pod), now, mine))
	if err != nil {
		if !errors.Is(err, errGone) {
			k.remember(pod)
		}
		return verdict{}, err
	}
	pod = recorded
	v := verdict{first: len(known) == 0}
	answered := map[string]bool{}
	for _, g := range gates {
		entry := recordOf(pod)[g.Name]
		o := outcome{gate: g, waited: max(now.Sub(entry.Since.Time), 0)}
		switch {
		case o.waited >= g.MaxWait.Duration:
			o.result = resultMaxWait
		case g.backend == nil:
			o.result, o.message = conditionOf(pod, g.PodCondition)
		case entry.Started == nil && !mine[g.Name]:
			o.result, o.message = g.unstarted(&entry)
		default:
			action := deletionv1alpha1.Check
			if mine[g.Name] {
				action = deletionv1alpha1.Prepare
			}
			var ok bool
			o.result, o.message, ok = k.askBackend(ctx, g, question(g, action, pod, entry.Since.Time, by))
			if mine[g.Name] {
				answered[g.Name] = ok
			}
		}
		if o.result == resultWaiting {
			v.waits = append(v.waits, o)
		} else {
			v.passes = append(v.passes, o)
		}
	}
	k.markPrepared(ctx, pod, answered, now)
	return v, nil
}

// unstarted returns the outcome of a gate whose preparation this request does not send. If the record changes the pod while
// the API server deletes it, the API server calls again for the same request, and must get the same answer again.
func (g *gate) unstarted(entry *deletionv1alpha1.Record) (result, message string) {
	if entry.Failed == nil || entry.Failed.Before(entry.Claimed) {
		return resultWaiting, "its preparation is being started"
	}
	return g.unanswered()
}

// unanswered returns the outcome of a gate whose backend does not answer.
func (g *gate) unanswered() (result, message string) {
	if g.backend.open {
		return resultUnavailable, ""
	}
	return resultWaiting, "the backend of the gate does not answer"
}

// markPrepared records which backends answered Prepare. If it fails, another replica sends Prepare again when the claim has
// expired, with the same UID.
func (k *keeper) markPrepared(ctx context.Context, pod *corev1.Pod, answered map[string]bool, now time.Time) {
	if len(answered) == 0 {
		return
	}
	if _, err := write(ctx, k.client.Pods(pod.Namespace), pod, prepared(answered, now)); err != nil && !errors.Is(err, errGone) {
		klog.FromContext(ctx).Error(err, "Could not record the answer to a request to prepare, so it is sent again", "pod", klog.KObj(pod))
	}
}

// askBackend returns the outcome of one gate, and whether its backend answered.
func (k *keeper) askBackend(ctx context.Context, g *gate, q *deletionv1alpha1.Request) (result, message string, answered bool) {
	key := g.Name + "/" + string(q.UID)
	if kept, ok := k.closed.Get(key); ok && q.Action == deletionv1alpha1.Check {
		message, _ = kept.(string)
		return resultWaiting, message, true
	}
	start := k.clock.Now()
	answer, err := g.backend.ask(ctx, q)
	k.reporter.asked(g, q.Action, k.clock.Since(start), err)
	switch {
	case err == nil && answer.Ready:
		return resultReady, "", true
	case err == nil:
		k.closed.Add(key, answer.Message, answerTTL)
		return resultWaiting, answer.Message, true
	}
	k.failures.Do(func() {
		klog.FromContext(ctx).Error(err, "The backend of a deletion gate failed", "gate", g.Name, "letGo", g.backend.open)
	})
	result, message = g.unanswered()
	return result, message, false
}

// conditionOf returns the outcome of a gate that waits for a condition of the pod.
func conditionOf(pod *corev1.Pod, name string) (result, message string) {
	for _, c := range pod.Status.Conditions {
		switch {
		case string(c.Type) != name:
		case c.Status == corev1.ConditionTrue:
			return resultReady, ""
		default:
			return resultWaiting, shown(c.Message)
		}
	}
	return resultWaiting, "the pod has no condition " + name
}

// whereabouts knows what became of the namespace and the node of a pod.
type whereabouts struct {
	namespaces corev1listers.NamespaceLister
	live       admit.Getter[*corev1.Namespace]
	nodes      admit.Getter[*corev1.Node]
}

// gone reports whether the namespace of a pod is terminating, or its node does not exist any more.
func (w *whereabouts) gone(ctx context.Context, pod *corev1.Pod) (bool, error) {
	ns, err := admit.Lookup(ctx, w.namespaces, w.live, pod.Namespace)
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, err
	case ns.DeletionTimestamp != nil:
		return true, nil
	}
	_, err = w.nodes.Get(ctx, pod.Spec.NodeName, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("looking up the node of the pod: %w", err)
	}
	return err != nil, nil
}

func decodeOptions(r *admit.Request, into *metav1.DeleteOptions) error {
	if len(r.Options.Raw) == 0 {
		return nil
	}
	if err := json.Unmarshal(r.Options.Raw, into); err != nil {
		return fmt.Errorf("decoding the options: %w", err)
	}
	return nil
}

func namesOf(gates []*gate) string {
	var names []string
	for _, g := range gates {
		names = append(names, g.Name)
	}
	return strings.Join(names, ", ")
}

// key identifies a pod.
type key struct {
	namespace, name string
	uid             types.UID
}
