package resourcequota

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/admission"
	resourcequotaapi "k8s.io/apiserver/pkg/admission/plugin/resourcequota/apis/resourcequota"
	quotav1 "k8s.io/apiserver/pkg/quota/v1"

	"github.com/postern-dev/postern/internal/turns"
)

// errTryAgain is the reason of a Conflict, in the words of an API server.
var errTryAgain = errors.New("the object has been modified; please apply your changes to the latest version and try again")

// ledger charges quotas for requests. The requests of a namespace that wait at the same time are charged together, so a
// burst of requests costs few writes.
//
// Upstream: the evaluator of k8s.io/apiserver also charges in batches. It knows no deadlines, so it charges requests
// that have long been answered, and it gives up after three conflicts, which several replicas easily cause.
type ledger struct {
	quotas  *quotas
	limited []resourcequotaapi.LimitedResource
	// waiting has the requests by namespace.
	waiting *turns.Queues[string, *demand]
}

// demand is a request that quotas are to be charged for.
type demand struct {
	attributes admission.Attributes
	evaluator  quotav1.Evaluator
	// owed are the names of the quotas that are not charged yet. Before the first attempt it is nil, which means all.
	owed []string
}

type turn = turns.Turn[*demand]

func newLedger(q *quotas, limited []resourcequotaapi.LimitedResource) *ledger {
	l := &ledger{quotas: q, limited: limited}
	// Replicas in conflict do not meet again. A writer that is always first is met often.
	l.waiting = turns.New(wait.Backoff{Duration: 5 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: 40 * time.Millisecond}, l.settle)
	return l
}

// charge charges the quotas of a namespace. It returns an error of the quota engine if the request does not fit, a
// Conflict if others wrote a quota until the deadline, and another error if it could not charge. Except after an error of
// the quota engine, the request may have been charged all the same: the quota controller corrects it.
func (l *ledger) charge(ctx context.Context, namespace string, d *demand) error {
	err := l.waiting.Do(ctx, namespace, d)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return fmt.Errorf("charging a quota: %w", err)
	}
	return err
}

// settle checks the requests against the quotas one after the other, and then writes the quotas. A request whose quota
// somebody else wrote in the meantime is checked again, with that quota.
func (l *ledger) settle(ctx context.Context, namespace string, batch []*turn) {
	before, err := l.read(ctx, namespace, batch)
	if err != nil {
		for _, t := range batch {
			t.Finish(err)
		}
		return
	}
	after := slices.Clone(before)
	charged := l.fit(after, batch)
	failed := l.write(ctx, before, after)
	for _, t := range charged {
		t.Item.owed = slices.DeleteFunc(t.Item.owed, func(name string) bool { return failed[name] == nil })
		conclude(t, failed)
	}
}

// conclude ends a request that is charged or cannot be charged. A conflict is tried again.
func conclude(t *turn, failed map[string]error) {
	for _, name := range t.Item.owed {
		if err := failed[name]; !apierrors.IsConflict(err) {
			t.Finish(fmt.Errorf("charging quota %s: %w", name, err))
			return
		}
	}
	if len(t.Item.owed) == 0 {
		t.Finish(nil)
		return
	}
	t.Retry(apierrors.NewConflict(corev1.Resource("resourcequotas"), t.Item.owed[0], errTryAgain))
}

// read returns the quotas of a namespace, ordered by name. After a conflict they come from the API server.
func (l *ledger) read(ctx context.Context, namespace string, batch []*turn) ([]corev1.ResourceQuota, error) {
	var stale []string
	for _, t := range batch {
		stale = append(stale, t.Item.owed...)
	}
	if len(stale) == 0 {
		return l.quotas.in(namespace)
	}
	return l.quotas.live(ctx, namespace, stale)
}

// fit checks the requests and adds what they use to the quotas. It returns the requests that change a quota, and finishes
// all others. A request for which nobody waits any more is not charged.
func (l *ledger) fit(quotas []corev1.ResourceQuota, batch []*turn) []*turn {
	var charged []*turn
	for _, t := range batch {
		if t.Ended() {
			continue
		}
		d := t.Item
		mine, limited := quotas, l.limited
		if d.owed != nil {
			// That there is a quota for the limited resources has been checked with all quotas.
			mine, limited = named(quotas, d.owed), nil
		}
		after, err := checkRequest(mine, d.attributes, d.evaluator, limited)
		if err != nil {
			t.Finish(err)
			continue
		}
		if d.owed = changed(mine, after); len(d.owed) == 0 {
			t.Finish(nil)
			continue
		}
		replace(quotas, after)
		charged = append(charged, t)
	}
	return charged
}

// named returns the quotas with some names. A quota that is gone limits nothing.
func named(quotas []corev1.ResourceQuota, names []string) []corev1.ResourceQuota {
	var out []corev1.ResourceQuota
	for i := range quotas {
		if slices.Contains(names, quotas[i].Name) {
			out = append(out, quotas[i])
		}
	}
	return out
}

// replace replaces quotas by those with the same name. Both lists are ordered by name.
func replace(quotas, by []corev1.ResourceQuota) {
	for i := range quotas {
		if len(by) > 0 && quotas[i].Name == by[0].Name {
			quotas[i], by = by[0], by[1:]
		}
	}
}

// changed returns the names of the quotas whose usage a request changed.
func changed(before, after []corev1.ResourceQuota) []string {
	var names []string
	for i := range after {
		if !quotav1.Equals(before[i].Status.Used, after[i].Status.Used) {
			names = append(names, after[i].Name)
		}
	}
	return names
}

// write writes the quotas that changed, and returns the errors by name. A quota that is gone limits nothing. An error
// other than a Conflict means that a write may have happened or not, so it is not repeated: repeating could charge twice.
// It is also the error of all quotas that are not written after it.
func (l *ledger) write(ctx context.Context, before, after []corev1.ResourceQuota) map[string]error {
	failed := map[string]error{}
	var last error
	for i := range after {
		if quotav1.Equals(before[i].Status.Used, after[i].Status.Used) {
			continue
		}
		err := last
		if err == nil {
			err = l.quotas.write(ctx, &after[i])
		}
		if err == nil || apierrors.IsNotFound(err) {
			continue
		}
		failed[after[i].Name] = err
		if !apierrors.IsConflict(err) {
			last = err
		}
	}
	return failed
}
