package deletiongate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/internal/writes"
	"github.com/postern-dev/postern/pkg/admit"
	deletionv1alpha1 "github.com/postern-dev/postern/pkg/apis/deletion/v1alpha1"
)

// asker is who deletes a pod. It is the zero asker where Postern asks on its own account.
type asker struct {
	cause deletionv1alpha1.Cause
	user  string
}

// verdict is the outcome of all gates of a pod.
type verdict struct {
	waits, passes []outcome
	// pod is the pod with its newest record.
	pod *corev1.Pod
	// first is true if the refusal is the first one.
	first bool
	// unwritten is why the gates were not asked, if the record could not be written.
	unwritten error
}

func (v *verdict) add(o outcome) {
	if o.result == resultWaiting {
		v.waits = append(v.waits, o)
	} else {
		v.passes = append(v.passes, o)
	}
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
	reply  reply
}

// reply is what a backend did with a request.
type reply int

const (
	// noReply: it was not asked, or not for as long as its timeout. The user may choose the time of the request, so the
	// failure policy does not apply.
	noReply reply = iota
	answer
	failure
)

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

// ask asks the gates of a pod. It first writes the record of the pod, so that the preparation has one sender. The only error is
// errGone.
func (k *keeper) ask(ctx context.Context, in *writes.Limit, pod *corev1.Pod, gates []*gate, by asker) (verdict, error) {
	if v, ok := k.expired(pod, gates); ok {
		return v, nil
	}
	now, mine := k.clock.Now(), map[string]bool{}
	known := recordOf(pod)
	recorded, err := k.write(ctx, in.Do, pod, claim(gates, k.firstTried(pod), now, mine))
	switch {
	case errors.Is(err, errGone):
		return verdict{}, err
	case err != nil:
		return k.unwritten(ctx, pod, gates, err), nil
	}
	v, answered := verdict{first: len(known) == 0}, map[string]bool{}
	for _, o := range k.askAll(ctx, gates, round{recorded, recordOf(recorded), by, now, mine}) {
		if mine[o.gate.Name] && o.reply != noReply {
			answered[o.gate.Name] = o.reply == answer
		}
		v.add(o)
	}
	v.pod = k.markPrepared(ctx, in.Then, recorded, answered, now)
	return v, nil
}

// unwritten returns the verdict about a pod whose record cannot be written. Without a record, two processes could send Prepare.
// Users choose the annotations of the pod, and more of what makes the write fail, so it is no failure, with which the failure
// policy would open the gates. The wait ends all the same, see expired.
func (k *keeper) unwritten(ctx context.Context, pod *corev1.Pod, gates []*gate, err error) verdict {
	k.unwrittens.Do(func() {
		klog.FromContext(ctx).Error(err, "Could not write the record of a pod, so its deletion is refused", "plugin", "DeletionGate", "pod", klog.KObj(pod))
	})
	v := verdict{pod: pod, unwritten: err, first: !k.remembers(pod) && len(recordOf(pod)) == 0}
	k.remember(pod)
	for _, o := range k.sofar(pod, gates) {
		o.message = shown(fmt.Sprintf("the annotation %s cannot be written: %v", deletionv1alpha1.WaitingAnnotation, writes.Shown(err)))
		v.add(o)
	}
	return v
}

// round is what all gates of a pod are asked with.
type round struct {
	pod    *corev1.Pod
	record entries
	by     asker
	now    time.Time
	// mine has the gates to which this process sends Prepare.
	mine map[string]bool
}

// askAll asks all gates of a pod at the same time, so that a backend that does not answer takes no time from others. It
// leaves time for the record and the answer.
func (k *keeper) askAll(ctx context.Context, gates []*gate, r round) []outcome {
	ctx, cancel := admit.Early(ctx)
	defer cancel()
	outcomes := make([]outcome, len(gates))
	var all sync.WaitGroup
	for i, g := range gates {
		all.Go(func() {
			defer func() {
				// The router does not see a panic of this goroutine.
				if p := recover(); p != nil {
					klog.FromContext(ctx).Error(nil, "Asking a deletion gate panicked", "gate", g.Name, "panic", p)
					outcomes[i] = outcome{gate: g, result: resultWaiting, message: "it could not be asked"}
				}
			}()
			outcomes[i] = k.outcomeOf(ctx, g, r)
		})
	}
	all.Wait()
	return outcomes
}

func (k *keeper) outcomeOf(ctx context.Context, g *gate, r round) outcome {
	entry := r.record[g.Name]
	o := outcome{gate: g, waited: max(r.now.Sub(entry.Since.Time), 0)}
	switch {
	case o.waited >= g.MaxWait.Duration:
		o.result = resultMaxWait
	case g.backend == nil:
		o.result, o.message = conditionOf(r.pod, g.PodCondition)
	case entry.Started == nil && !r.mine[g.Name]:
		o.result, o.message = g.unstarted(&entry)
	default:
		action := deletionv1alpha1.Check
		if r.mine[g.Name] {
			action = deletionv1alpha1.Prepare
		}
		o.result, o.message, o.reply = k.askBackend(ctx, g, question(g, action, r.pod, entry.Since.Time, r.by))
	}
	return o
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

// markPrepared records which backends answered Prepare, and returns the pod. If it fails, another replica sends Prepare again
// when the claim has expired, with the same UID.
func (k *keeper) markPrepared(ctx context.Context, in turn, pod *corev1.Pod, answered map[string]bool, now time.Time) *corev1.Pod {
	if len(answered) == 0 {
		return pod
	}
	marked, err := k.write(ctx, in, pod, prepared(answered, now))
	if err == nil {
		return marked
	}
	if !errors.Is(err, errGone) {
		klog.FromContext(ctx).Error(err, "Could not record the answer to a request to prepare, so it is sent again", "pod", klog.KObj(pod))
	}
	return pod
}

// askBackend returns the outcome of one gate, and what its backend did.
func (k *keeper) askBackend(ctx context.Context, g *gate, q *deletionv1alpha1.Request) (result, message string, did reply) {
	key := g.Name + "/" + string(q.UID)
	if kept, ok := k.closed.Get(key); ok && q.Action == deletionv1alpha1.Check {
		message, _ = kept.(string)
		return resultWaiting, message, answer
	}
	start := k.clock.Now()
	got, err := g.backend.ask(ctx, q)
	if err != nil && (ctx.Err() != nil || errors.Is(err, errNoTime)) {
		return resultWaiting, "the backend of the gate has not answered yet", noReply
	}
	k.reporter.asked(g, q.Action, k.clock.Since(start), err)
	switch {
	case err == nil && got.Ready:
		return resultReady, "", answer
	case err == nil:
		k.closed.Add(key, got.Message, answerTTL)
		return resultWaiting, got.Message, answer
	}
	k.failures.Do(func() {
		klog.FromContext(ctx).Error(err, "The backend of a deletion gate failed", "gate", g.Name, "letGo", g.backend.open)
	})
	result, message = g.unanswered()
	return result, message, failure
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
