package deletiongate

import (
	"context"
	"encoding/json"
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
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	"github.com/postern-dev/postern/internal/names"
	"github.com/postern-dev/postern/internal/writes"
	"github.com/postern-dev/postern/pkg/admit"
)

const (
	// remembered is the number of answers, and of pods without a record, that a process remembers.
	remembered = 4096
	// answerTTL is how long an answer that a gate is closed counts. An answer that it is open is not kept.
	answerTTL = time.Second
)

// keeper asks gates, and keeps the records of pods.
type keeper struct {
	client      typedcorev1.PodsGetter
	metadata    metadata.Interface
	clock       clock.PassiveClock
	whereabouts *whereabouts
	reporter    *reporter
	waiting     *waiting
	// requests and background bound how many records are written at a time.
	requests, background *writes.Limit
	// closed has the messages of gates that were closed a moment ago.
	closed *cache.LRUExpireCache
	// unrecorded has the times of first refusals that could not be recorded, by the UID of the pod.
	unrecorded *cache.LRUExpireCache
	// failures bounds the log lines about backends, and unwrittens those about records, which users can cause.
	failures, unwrittens rate.Sometimes
}

func newKeeper(d admit.Deps, gates []*gate) (*keeper, error) {
	r, err := newReporter(d)
	if err != nil {
		return nil, err
	}
	namespaces := d.Informers.Core().V1().Namespaces()
	k := &keeper{
		client: d.Client.CoreV1(), metadata: d.Metadata, clock: d.Clock, reporter: r, failures: rate.Sometimes{Interval: time.Second}, unwrittens: rate.Sometimes{Interval: time.Second},
		requests: writes.NewLimit(maxPatching), background: writes.NewLimit(1),
		whereabouts: &whereabouts{namespaces.Lister(), d.Client.CoreV1().Namespaces(), d.Client.CoreV1().Nodes()},
		closed:      cache.NewLRUExpireCacheWithClock(remembered, d.Clock), unrecorded: cache.NewLRUExpireCacheWithClock(remembered, d.Clock),
	}
	k.waiting = newWaiting(k, gates)
	d.Go(k.waiting.run)
	return k, nil
}

func (k *keeper) watch(pod *corev1.Pod, gates []*gate) { k.waiting.add(pod, gates) }

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
	if !names.CanExist(pod.Spec.NodeName) {
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
